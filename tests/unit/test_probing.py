"""The measurements of two agents of a probe, in this process, over loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from switchml.common.probe_bounds import KEY_BYTES, MOST_BYTES, MOST_SECONDS
from switchml.controller.proto import switchml_pb2 as pb
from switchml.host_agent.probing import Probing

KEY = bytes(range(KEY_BYTES))
ADDRESS = "127.0.0.1"
SECONDS = 30.0


@dataclass
class Prober:
    """An agent's probing, and its answers."""

    answers: asyncio.Queue[pb.ProbeAnswer] = field(default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        self.probing = Probing(ADDRESS, lambda message: self.answers.put_nowait(message.probe_answer))

    async def order(self, number: int, **order: object) -> pb.ProbeAnswer:
        self.probing.carry_out(pb.ProbeOrder(number=number, **order))  # type: ignore[arg-type]
        answer = await asyncio.wait_for(self.answers.get(), SECONDS)
        assert answer.number == number
        return answer

    async def open(self, key: bytes = KEY) -> int:
        answer = await self.order(1, open=pb.ProbeOrder.Open(key=key))
        assert not answer.failure
        return answer.port

    async def measure(self, port: int, nbytes: int = 0, seconds: float = SECONDS) -> pb.ProbeAnswer:
        measure = pb.ProbeOrder.Measure(address=ADDRESS, port=port, bytes=nbytes, seconds=seconds)
        return await self.order(2, measure=measure)


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Prober, Prober]]:
    both = Prober(), Prober()
    yield both
    for one in both:
        one.probing.close()


async def test_round_trips_and_the_rates_of_both_directions(pair: tuple[Prober, Prober]) -> None:
    one, other = pair
    await one.open()
    port = await other.open()
    answer = await one.measure(port)
    assert not answer.failure
    assert 0 < answer.round_trip < SECONDS
    assert answer.bytes_per_second == answer.bytes_per_second_back == 0
    answer = await one.measure(port, (1 << 20) + 7)
    assert answer.bytes_per_second > 0
    assert answer.bytes_per_second_back > 0


async def test_a_partner_with_another_key_gets_no_answer(pair: tuple[Prober, Prober]) -> None:
    one, other = pair
    await one.open(bytes(KEY_BYTES))
    port = await other.open()
    assert (await one.measure(port, 1)).failure
    for hello in (b"", b"GET / HTTP/1.1\r\nHost: switchml\r\n\r\n", KEY + (MOST_BYTES + 1).to_bytes(8, "big")):
        assert await asyncio.to_thread(what_a_stranger_gets, port, hello) == b""


def what_a_stranger_gets(port: int, hello: bytes) -> bytes:
    with socket.create_connection((ADDRESS, port), timeout=SECONDS) as stranger:
        try:
            stranger.sendall(hello)
            stranger.shutdown(socket.SHUT_WR)
            return stranger.recv(1024)
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            return b""  # the connection was closed before everything was read


async def test_a_closed_probe_listens_no_longer_and_its_measurements_end(pair: tuple[Prober, Prober]) -> None:
    one, other = pair
    await one.open()
    port = await other.open()
    with socket.create_server((ADDRESS, 0)) as silent:  # its queue takes the connection, and nothing answers
        measure = pb.ProbeOrder.Measure(address=ADDRESS, port=silent.getsockname()[1], seconds=MOST_SECONDS)
        one.probing.carry_out(pb.ProbeOrder(number=3, measure=measure))
        silent.settimeout(SECONDS)
        connection, _ = await asyncio.to_thread(silent.accept)
        with connection:
            one.probing.carry_out(pb.ProbeOrder(close=pb.ProbeOrder.Close()))
            connection.settimeout(SECONDS)
            while await asyncio.to_thread(connection.recv, 1024):  # until its end
                pass
    assert (await one.measure(port)).failure == "the agent takes part in no probe"
    other.probing.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(ADDRESS, port)


async def test_what_an_agent_refuses(pair: tuple[Prober, Prober]) -> None:
    one, _ = pair
    answer = await one.order(4, open=pb.ProbeOrder.Open(key=b"short"))
    assert answer.failure == "the key of a probe has 16 bytes, not 5"
    port = await one.open()
    for measure in (
        await one.measure(port, MOST_BYTES + 1),
        await one.measure(port, 0, MOST_SECONDS + 1),
        await one.measure(port, 0, 0),
        await one.measure(0),
    ):
        assert "a measurement has a port, at most 67108864 bytes and at most 600 s" in measure.failure
    with socket.socket() as bound:
        bound.bind((ADDRESS, 0))
        assert (await one.measure(bound.getsockname()[1])).failure == "Connection refused"


async def test_an_address_at_which_it_cannot_listen_is_named() -> None:
    answers: list[pb.AgentMessage] = []
    Probing("203.0.113.1", answers.append).carry_out(pb.ProbeOrder(open=pb.ProbeOrder.Open(key=KEY)))
    why = answers[0].probe_answer.failure
    assert why.startswith("cannot listen at 203.0.113.1: Cannot assign requested address")
