"""A switch that records the changes of its tables."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from switchml.controller.drivers import Capabilities, Driver, JobTables, JobTraffic, PortLoss, SwitchContents
from switchml.controller.errors import SwitchRefused
from switchml.dataplane.constants import Format, Verdict

ALL_SLOTS = 1024


class RecordingDriver(Driver):
    """A switch that records changes of its tables, and refuses those in `refused`."""

    primary = True
    _connected = True

    def __init__(self, steps: list[str], name: str = "switch", values: int = 64, leaf: bool = True) -> None:
        self.steps = steps
        self.name = name
        self.values = values
        self.leaf = leaf
        self.rocev2 = False
        self.owned_results = False
        self.slots = ALL_SLOTS
        self.formats: frozenset[Format] = frozenset({Format.INT32})
        self.tables: JobTables | None = None  # those written last
        self.refused: set[str] = set()
        self.packets = 0  # of each verdict
        self.prepared_again = False
        self.answers = asyncio.Event()  # cleared: changes of its tables wait
        self.answers.set()
        self.nonce = 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            values_per_packet=self.values,
            slots=self.slots,
            owned_results=self.owned_results,
            leaf=self.leaf,
            formats=self.formats,
            rocev2=self.rocev2,
        )

    async def install_job(self, job: JobTables) -> None:
        self.tables = job
        await self.answers.wait()
        self._change("install", f"{job.epoch}")

    async def replace_job(self, old: JobTables, new: JobTables) -> None:
        self.tables = new
        await self.answers.wait()
        self._change("replace", f"{old.epoch} by {new.epoch}")

    async def remove_job(self, job: JobTables) -> None:
        self.tables = None
        await self.answers.wait()
        self._change("remove", f"{job.epoch}")

    def _change(self, what: str, epochs: str) -> None:
        self.steps.append(f"{self.name} {what} {epochs}")
        if what in self.refused:
            raise SwitchRefused("the table is full")

    def prepare_again(self) -> None:
        self.prepared_again = True

    async def read_verdicts(self, job_ids: Sequence[int]) -> dict[Verdict, int]:
        return dict.fromkeys(Verdict, self.packets)

    async def read_traffic(self, job: JobTables, children: Sequence[int]) -> JobTraffic:
        return JobTraffic(dict.fromkeys(Verdict, self.packets), {}, 0)

    async def run(self, prepare: Callable[[bool], Awaitable[None]]) -> None:
        raise NotImplementedError

    async def reload(self) -> None:
        self.nonce = 0

    async def read_nonce(self) -> int:
        return self.nonce

    async def write_nonce(self, nonce: int) -> None:
        self.nonce = nonce

    async def reconcile(self, jobs: Sequence[JobTables]) -> int:
        raise NotImplementedError

    async def set_loss(self, ports: Sequence[int], shares: Mapping[str, float]) -> list[PortLoss]:
        raise NotImplementedError

    async def read_contents(self) -> SwitchContents:
        raise NotImplementedError
