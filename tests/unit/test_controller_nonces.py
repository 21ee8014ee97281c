"""The nonce that a switch keeps: a store that does not know it does not use what the switch's registers hold."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from switchml.common.deadline import within
from switchml.controller.config import SwitchConfig
from switchml.controller.drivers import JobTables
from switchml.controller.errors import SwitchRefused
from switchml.controller.records import Job, JobSwitch
from switchml.controller.store.database import EPOCHS_OF_A_NONCE, Store
from switchml.controller.switches import ManagedSwitch, Switches
from switchml.dataplane.targets import SOFT
from tests.unit.recording_driver import RecordingDriver


class Keeper(RecordingDriver):
    """A switch with a pipeline: its nonce, the number of times that it was emptied, and the epochs used since."""

    def __init__(self) -> None:
        super().__init__([])
        self.emptied = 0
        self.used: set[int] = set()
        self.fails = ""  # "before" or "after" the write of a nonce

    async def run(self, prepare: Callable[[bool], Awaitable[None]]) -> None:
        await prepare(False)

    async def reload(self) -> None:
        await super().reload()
        self.emptied += 1
        self.used.clear()

    async def write_nonce(self, nonce: int) -> None:
        if self.fails != "before":
            await super().write_nonce(nonce)
        if self.fails:
            raise SwitchRefused("it does not answer")

    async def reconcile(self, jobs: Sequence[JobTables]) -> int:
        return len(jobs)


class Session:
    """A controller's switches, by name, while it has the store `path` open."""

    def __init__(self, path: Path, **drivers: Keeper) -> None:
        self.store = Store(path)
        self.drivers = drivers
        configs = [SwitchConfig(name, SOFT, "127.0.0.1", p4runtime="x:1") for name in drivers]
        self.switches = Switches(map(ManagedSwitch, configs, drivers.values()), self.store)

    async def connect(self) -> dict[str, str]:
        """Connect all switches; return what happened to those whose registers lost their contents."""
        told: dict[str, str] = {}
        all_told = asyncio.Event()

        def prepare(switch: ManagedSwitch, what: str) -> list[JobTables]:
            told[switch.name] = what
            if len(told) == len(self.drivers):
                all_told.set()
            return []

        task = asyncio.create_task(self.switches.run(prepare))
        await within(30, all_told.wait())
        task.cancel()
        await asyncio.wait({task})
        return {name: what for name, what in told.items() if what}

    async def use(self, name: str) -> int:
        """Start a job on a switch; return its epoch, which the registers must not hold yet."""
        switch, driver = self.switches.get(name), self.drivers[name]
        epoch = self.switches.next_epoch([switch], "")
        place = JobSwitch(name, epoch, slot_base=0, slots=2, group=1)
        self.store.create_job(Job(0, 1, "j", 1, 64, 1.0, switches=[place]))
        async with switch.lock:
            await self.switches.vouch(switch, epoch)
        assert epoch not in driver.used, f"epoch {epoch} was used twice"
        driver.used.add(epoch)
        return epoch

    def copy(self, path: Path) -> Path:
        """Make a copy of the store, as a backup does."""
        with closing(sqlite3.connect(self.store.path)) as store, closing(sqlite3.connect(path)) as target:
            store.backup(target)
        return path

    def close(self) -> None:
        self.store.close()


async def test_a_switch_that_the_store_knows_is_not_emptied(tmp_path: Path) -> None:
    driver = Keeper()
    for number in range(3):
        session = Session(tmp_path / "store", s1=driver)
        assert bool(await session.connect()) == (number == 0)
        for _ in range(EPOCHS_OF_A_NONCE + 2):
            await session.use("s1")
        session.close()
    assert driver.emptied == 1


async def test_an_older_copy_does_not_know_the_nonce(tmp_path: Path) -> None:
    driver = Keeper()
    session = Session(tmp_path / "store", s1=driver)
    await session.connect()
    await session.use("s1")
    older = session.copy(tmp_path / "copy")
    for _ in range(EPOCHS_OF_A_NONCE):
        await session.use("s1")
    session.close()
    restored = Session(older, s1=driver)
    assert "this is an older copy of the store" in (await restored.connect())["s1"]
    assert driver.emptied == 2
    await restored.use("s1")
    restored.close()


@pytest.mark.parametrize("uses", [0, 1, 5])
async def test_a_copy_that_knows_the_nonce_skips_what_its_original_may_have_used(tmp_path: Path, uses: int) -> None:
    driver = Keeper()
    session = Session(tmp_path / "store", s1=driver)
    await session.connect()
    copies = [session.copy(tmp_path / "copy-0")]
    for number in range(uses):
        await session.use("s1")
        copies.append(session.copy(tmp_path / f"copy-{number + 1}"))
    session.close()
    restored = Session(copies[0], s1=driver)
    assert await restored.connect() == {}
    await restored.use("s1")
    restored.close()


async def test_switches_that_change_places_are_emptied(tmp_path: Path) -> None:
    one, other = Keeper(), Keeper()
    session = Session(tmp_path / "store", s1=one, s2=other)
    await session.connect()
    await session.use("s1")
    session.close()
    swapped = Session(tmp_path / "store", s1=other, s2=one)
    assert (await swapped.connect()).keys() == {"s1", "s2"}
    await swapped.use("s2")
    swapped.close()
    assert (one.emptied, other.emptied) == (2, 2)


async def test_two_stores_that_serve_a_switch_in_turns(tmp_path: Path) -> None:
    driver = Keeper()
    for turn in range(4):
        session = Session(tmp_path / f"store-{turn % 2}", s1=driver)
        assert await session.connect()
        for _ in range(3):
            await session.use("s1")
        session.close()
    assert driver.emptied == 4


@pytest.mark.parametrize("fails", ["before", "after"])
async def test_a_crash_while_the_nonce_changes_loses_no_sums(tmp_path: Path, fails: str) -> None:
    driver = Keeper()
    session = Session(tmp_path / "store", s1=driver)
    await session.connect()
    for _ in range(EPOCHS_OF_A_NONCE - 1):
        await session.use("s1")
    driver.fails = fails
    for _ in range(2):
        with pytest.raises(SwitchRefused):
            await session.use("s1")
    session.close()
    driver.fails = ""
    again = Session(tmp_path / "store", s1=driver)
    assert await again.connect() == {}
    await again.use("s1")
    again.close()
    assert driver.emptied == 1
