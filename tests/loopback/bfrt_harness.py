"""A BfRt server in the test's event loop, and a driver that is kept connected to it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence

from ptf_tests.tofino_emulator.bfrt_device import Device, Program
from ptf_tests.tofino_emulator.bfrt_server import Servicer, create_server
from ptf_tests.tofino_emulator.chassis import Chassis
from ptf_tests.tofino_emulator.daemon import DEFAULT_BFRT
from switchml.common.grpc_stop import stop_server
from switchml.common.tls import Security
from switchml.controller.config import SwitchConfig
from switchml.controller.drivers import JobTables, RankPort, bfrt_session
from switchml.controller.drivers.bfrt import BfrtDriver
from switchml.dataplane.targets import TOFINO
from switchml.dataplane.tofino_port import TofinoPort

# The server computes in the driver's own thread, which on a busy machine may take long.
bfrt_session._CALL_SECONDS = 60.0

PORTS = (
    TofinoPort("1/0", 1, "100G", "rs", "off"),
    TofinoPort("2/0", 2, "100G"),
    TofinoPort("20/1", 3, "25G"),
    TofinoPort("15/0", speed="100G", role="recirculation"),
    TofinoPort("196", role="recirculation"),
)


def make_job(number: int = 1, ports: Sequence[int] = (1, 2), epoch: int = 1) -> JobTables:
    ranks = tuple(
        RankPort(rank, port, 0x020000000100 + rank, 0x0A000100 + rank, 40000 + rank) for rank, port in enumerate(ports)
    )
    return JobTables(number, epoch, (number - 1) * 64, 64, number, ranks)


def make_device(bfrt: bytes | None = None, name: str = "switchml") -> Device:
    return Device(Program(name, DEFAULT_BFRT.read_bytes() if bfrt is None else bfrt), Chassis.standard())


@contextlib.asynccontextmanager
async def serving(
    device: Device, address: str = "127.0.0.1:0", make: Callable[[Device], Servicer] = Servicer
) -> AsyncIterator[tuple[str, Servicer]]:
    device.port_listeners.clear()
    servicer = make(device)
    server, bound = create_server(servicer, address, Security())
    await server.start()
    try:
        yield bound, servicer
    finally:
        servicer.end_streams()
        await stop_server(server, 0)


def make_driver(address: str, ports: tuple[TofinoPort, ...] = PORTS, program: str = "switchml") -> BfrtDriver:
    return BfrtDriver(SwitchConfig("t1", TOFINO, "10.0.0.254", bfrt=address, ports=ports, program=program))


class Running:
    """A driver whose ``run`` continues; ``jobs`` are those that the switch must hold when it is connected."""

    def __init__(self, driver: BfrtDriver) -> None:
        self.driver = driver
        self.jobs: list[JobTables] = []
        self.prepared: list[bool] = []  # True if the switch was empty

    async def prepare(self, loaded: bool) -> None:
        self.prepared.append(loaded)
        await self.driver.reconcile(self.jobs)

    async def until(self, condition: Callable[[], object], what: str, seconds: float = 15.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"{what}: not within {seconds} s; {self.driver.failure}"
            await asyncio.sleep(0.01)

    async def connected(self) -> None:
        await self.until(lambda: self.driver.connected and self.driver.primary, "the driver is connected")

    async def failed(self, words: str) -> None:
        await self.until(lambda: words in self.driver.failure, f"the failure says {words!r}")


@contextlib.asynccontextmanager
async def running(driver: BfrtDriver) -> AsyncIterator[Running]:
    state = Running(driver)
    task = asyncio.create_task(driver.run(state.prepare))
    try:
        yield state
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait({task})
