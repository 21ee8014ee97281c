"""NCCL's collective network over a real switch and agents, as NCCL's proxy uses it."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from tests.nccl.plugin import (
    CUDA,
    INVALID_ARGUMENT,
    INVALID_USAGE,
    PRODUCT,
    REMOTE_ERROR,
    SECONDS,
    SUM,
    SYSTEM_ERROR,
    TYPES,
    Array,
    CollectiveNetwork,
    Group,
    NcclError,
)

CONTROL = str(Path(sys.executable).parent / "switchml-ctl")
T = TypeVar("T")

versions = pytest.mark.parametrize("version", [8, 11])


def control(command: str, directory: Path) -> None:
    environment = os.environ | {"SWITCHML_RUN_DIR": str(directory)}
    subprocess.run([CONTROL, command], env=environment, check=True, capture_output=True, timeout=SECONDS)


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("fabric") / "run"
    control("up", directory)
    yield directory
    control("down", directory)


@pytest.fixture
def run_directory(fabric: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SWITCHML_RUN_DIR", str(fabric))
    return fabric


def in_ranks(version: int, ranks: int, work: Callable[[Group], T]) -> list[T]:
    """Run `work` on each rank of a group, which are threads of this process."""
    network = CollectiveNetwork(version)
    handles = [network.listen() for _ in range(ranks)]

    def rank(number: int) -> T:
        group = network.connect(handles, number)
        done = work(group)
        group.close()
        return done

    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(rank, range(ranks)))


def values(dtype: type[np.generic], size: int, rank: int) -> Array:
    return (np.arange(size) % 7 + rank).astype(dtype)


@versions
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_all_reduces_of_all_types(run_directory: Path, version: int, ranks: int) -> None:
    def work(group: Group) -> None:
        for dtype in TYPES:
            for size in (0, 1, 4099):
                send, receive = values(dtype, size, group.rank), np.zeros(size, dtype)
                right = sum(values(dtype, size, rank).astype(np.float64) for rank in range(ranks))
                assert group.wait(group.iallreduce(send, receive)) == send.nbytes
                assert (receive.astype(np.float64) == right).all(), dtype
                group.wait(group.iallreduce(send, send))  # in place
                assert (send == receive).all()

    in_ranks(version, ranks, work)


@versions
@pytest.mark.parametrize("chunk", [1 << 16, 1 << 20, 12_345_678])
def test_a_large_all_reduce_in_steps(run_directory: Path, version: int, chunk: int) -> None:
    size = 1 << 24  # 64 MiB

    def work(group: Group) -> Array:
        send = np.random.default_rng(group.rank).standard_normal(size, np.float32)
        receive = np.empty_like(send)
        group.all_reduce(send, receive, chunk)
        return receive

    results = in_ranks(version, 2, work)
    assert (results[0] == results[1]).all()
    exact = sum(np.random.default_rng(rank).standard_normal(size, np.float32).astype(np.float64) for rank in range(2))
    assert np.abs(results[0] - exact).max() < 1e-5


def windows(part: int, ranks: int, item: int) -> list[tuple[int, int]]:
    """Return windows, (offset, bytes), that begin and end at, before and after the borders of all parts."""
    borders = {0, item, part * ranks - item, part * ranks}
    for rank in range(1, ranks):
        borders |= {rank * part - item, rank * part, rank * part + item}
    ordered = sorted(borders)
    return [(begin, end - begin) for begin in ordered for end in ordered if begin < end]


@versions
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_windows_at_every_border(run_directory: Path, version: int, ranks: int) -> None:
    size = 501

    def work(group: Group) -> None:
        own = values(np.int32, size, 100 * group.rank)
        everything = np.concatenate([values(np.int32, size, 100 * rank) for rank in range(ranks)])
        parts = everything * (group.rank + 1)
        total = everything * sum(range(1, ranks + 1))
        for window in windows(own.nbytes, ranks, own.itemsize):
            first, last = window[0] // 4, (window[0] + window[1]) // 4
            gathered = np.full_like(everything, -1)
            assert group.wait(group.iallgather(own, gathered, window)) == window[1]
            expected = np.full_like(everything, -1)
            expected[first:last] = everything[first:last]
            assert (gathered == expected).all(), window
            summed = np.full_like(own, -1)
            group.wait(group.ireducescatter(parts, summed, window))
            expected = np.full_like(everything, -1)
            expected[first:last] = total[first:last]
            assert (summed == expected[group.rank * size : (group.rank + 1) * size]).all(), window

    in_ranks(version, ranks, work)


def test_nan_stays_nan_and_is_no_error(run_directory: Path) -> None:
    def work(group: Group) -> Array:
        send = np.ones(100, np.float32)
        if group.rank == 1:
            send[7] = np.nan
        group.wait(group.iallreduce(send, send))
        return send

    for result in in_ranks(11, 2, work):
        assert np.isnan(result[7])
        assert np.isnan(result).sum() == 1
        assert result[0] == 2


def dying_rank(handles: list[bytes], joined: Connection) -> None:
    group = CollectiveNetwork(11).connect(handles, 2)
    data = np.ones(1000, np.float32)
    group.wait(group.iallreduce(data, data))
    joined.send("joined")
    threading.Event().wait(SECONDS)


def test_the_others_learn_of_a_killed_rank(run_directory: Path) -> None:
    network = CollectiveNetwork(11)
    handles = [network.listen() for _ in range(3)]
    here, there = multiprocessing.Pipe()
    dying = multiprocessing.get_context("spawn").Process(target=dying_rank, args=(handles, there), daemon=True)
    dying.start()
    killed = threading.Event()

    def rank(number: int) -> NcclError:
        group = network.connect(handles, number)
        data = np.ones(1000, np.float32)
        group.wait(group.iallreduce(data, data))
        assert killed.wait(SECONDS)
        with pytest.raises(NcclError) as caught:
            group.wait(group.iallreduce(data, data))
        group.close()
        return caught.value

    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(rank, number) for number in range(2)]
        assert here.poll(SECONDS)
        dying.kill()
        killed.set()
        errors = [other.result() for other in others]
    assert [error.result for error in errors] == [REMOTE_ERROR, REMOTE_ERROR]
    assert any("rank 2" in warning for warning in network.warnings), network.warnings


@versions
def test_without_an_agent_nccl_goes_on_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    monkeypatch.setenv("SWITCHML_AGENT", str(tmp_path / "none.sock"))
    network = CollectiveNetwork(version)
    assert network.devices() == 1
    handles = [network.listen() for _ in range(2)]
    with pytest.raises(NcclError) as caught:
        network.connect(handles, 1)
    assert caught.value.result == SYSTEM_ERROR
    assert str(caught.value).startswith(
        f"switchml: collNet is not used; rank 1 of 2 hosts: there is no agent socket at {tmp_path}/none.sock"
    )


def test_a_switch_without_room(run_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHML_SLOTS", "16777216")
    network = CollectiveNetwork(8)
    handles = [network.listen() for _ in range(2)]

    def rank(number: int) -> str:
        with pytest.raises(NcclError) as caught:
            network.connect(handles, number)
        return str(caught.value)

    with ThreadPoolExecutor(2) as pool:
        for said in pool.map(rank, range(2)):
            assert "switchml: collNet is not used; rank" in said
            assert "slots" in said


@versions
def test_what_is_refused(run_directory: Path, version: int) -> None:
    network = CollectiveNetwork(version)
    float8 = 10
    assert all(network.supports(kind, SUM) for kind in TYPES.values())
    assert not network.supports(TYPES[np.float32], PRODUCT)
    assert not network.supports(float8, SUM)
    with pytest.raises(NcclError, match="rank 0's handle is not of this version") as wrong_handle:
        network.connect([bytes(128), bytes(128)], 0)
    assert wrong_handle.value.result == SYSTEM_ERROR

    def refused(result: int, words: str, begin: Callable[[], object]) -> None:
        with pytest.raises(NcclError, match=words) as caught:
            begin()
        assert caught.value.result == result

    def work(group: Group) -> None:
        data = np.ones(8, np.float32)
        group.register(data)
        refused(INVALID_USAGE, "memory of a GPU cannot be sent", lambda: group.register(data, CUDA))
        refused(INVALID_ARGUMENT, "type 10 of NCCL has no sum", lambda: group.iallreduce(data, data, float8))
        refused(INVALID_ARGUMENT, "operation 1 is not a sum", lambda: group.iallreduce(data, data, None, PRODUCT))
        refused(INVALID_USAGE, "in 2 pieces of memory", lambda: group.iallgather(data, data, (0, 32), 2))
        group.wait(group.iallreduce(data, data))
        assert (data == 2).all()

    in_ranks(version, 2, work)
