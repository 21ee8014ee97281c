"""A program has the switch's port: it reads all contributions, and answers with other sums."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

import switchml
from ptf_tests.wire import Packet
from switchml.dataplane.constants import OWNER_EVERYONE, Kind
from tests.support.collective_harness import ADDRESS, Fabric, running_fabric

RANKS = 2
VALUES = 16
DELTA = 666

Forge = Callable[[Packet], Packet]
"""Changes a RESULT that is right."""


def as_it_is(result: Packet) -> Packet:
    return result


def with_another_sum(result: Packet) -> Packet:
    return replace(result, values=tuple(value + DELTA for value in result.values))


def with_another_sum_and_public_weights(result: Packet) -> Packet:
    """Return the change that a check without a key does not show."""
    added = sum(((i + 1) * 0x9E3779B1 % 2**32 | 1) * DELTA for i in range(VALUES))
    return replace(with_another_sum(result), check=(result.check + added) % 2**32)


def with_zeros(result: Packet) -> Packet:
    return replace(result, values=(0,) * len(result.values))


@contextmanager
def thief(fabric: Fabric, forge: Forge) -> Iterator[None]:
    """Answer in the place of the switch of later jobs, where `forge` may change every RESULT with values."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((ADDRESS, 0))
        sock.settimeout(0.1)
        fabric.switch_udp_port = sock.getsockname()[1]
        over = threading.Event()
        thread = threading.Thread(target=answer, args=(sock, forge, over))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def answer(sock: socket.socket, forge: Forge, over: threading.Event) -> None:
    phases: dict[tuple[int, int, int], dict[int, tuple[Packet, tuple[str, int]]]] = {}
    while not over.is_set():
        try:
            data, sender = sock.recvfrom(65536)
        except TimeoutError:
            continue
        packet = Packet.unpack(data)
        senders = phases.setdefault((packet.job, packet.slot, packet.phase), {})
        senders[packet.worker] = (packet, sender)
        if len(senders) == RANKS:
            result = sum_of([one for one, _ in senders.values()], packet)
            for _, address in senders.values():
                sock.sendto((forge(result) if result.values else result).pack(), address)


def sum_of(packets: list[Packet], last: Packet) -> Packet:
    return replace(
        last,
        kind=Kind.RESULT,
        values=tuple(map(sum, zip(*(packet.integers for packet in packets), strict=True))),
        exponent=max(packet.exponent for packet in packets),
        check=sum(packet.check for packet in packets) % 2**32,
        owner=OWNER_EVERYONE,
    )


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    with running_fabric(tmp_path_factory.mktemp("thief"), VALUES) as made:
        yield made


def reduce(fabric: Fabric, job: int, forge: Forge, dtype: type[np.generic]) -> list[object]:
    """Return the sums of each rank, or the error that it got."""

    def call(comm: switchml.Communicator) -> object:
        array = np.arange(3 * VALUES).astype(dtype)
        try:
            comm.all_reduce(array, timeout=60)
        except switchml.SwitchMLError as error:
            return error
        return array.tolist()

    with thief(fabric, forge):
        fabric.add_job(job, RANKS, slots=4)
        return fabric.run_ranks(RANKS, call, job)


DTYPES = [np.int32, np.float32]
JOBS = itertools.count(1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_program_can_answer_as_a_switch_does(fabric: Fabric, dtype: type[np.generic]) -> None:
    job = next(JOBS)
    assert reduce(fabric, job, as_it_is, dtype) == [[RANKS * i for i in range(3 * VALUES)]] * RANKS


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("forge", [with_another_sum, with_another_sum_and_public_weights, with_zeros])
def test_forged_sums_are_found(fabric: Fabric, forge: Forge, dtype: type[np.generic]) -> None:
    job = next(JOBS)
    for outcome in reduce(fabric, job, forge, dtype):
        assert isinstance(outcome, switchml.IntegrityError), outcome
