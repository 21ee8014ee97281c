"""Dead links between switches, found from counters that the tests set."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from switchml.common.switch_trees import ParentLink
from switchml.controller.drivers import JobTraffic
from switchml.controller.errors import SwitchUnavailable
from switchml.controller.jobs.lost_links import SILENT_READINGS, LostLinks, link_states
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import Job, JobState, JobSwitch, Rank
from switchml.dataplane.constants import Verdict

PARENTS = {"core": "", "spine": "core", "leaf1": "spine", "leaf2": "spine"}


def tree_job() -> Job:
    """Return a job with a rank at each leaf and one at the core, where the spine is thus number 1."""
    job = Job(key=1, id=1, name="job", workers=3, values_per_packet=64, created=0.0, state=JobState.RUNNING)
    job.switches = [JobSwitch(name, 1, 0, 64, 1, upstream=parent) for name, parent in PARENTS.items()]
    for number, switch in enumerate(("leaf1", "leaf2", "core")):
        job.ranks.append(Rank(number, "a", "i", "h", "/s", 1, "00:00:00:00:00:00", switch))
    return job


class Counted:
    """A switch whose counters the test adds to."""

    connected = primary = True

    def __init__(self, name: str, parent: str) -> None:
        self.name = name
        self.config = SimpleNamespace(parent=ParentLink(parent, 7, 8) if parent else None)
        self.driver = self
        self.verdicts = dict.fromkeys(Verdict, 0)
        self.contributions: dict[int, int] = {}
        self.results = 0
        self.answers = True

    async def read_verdicts(self, _jobs: Any) -> dict[Verdict, int]:
        return dict(self.verdicts)

    async def read_traffic(self, _job: Any, _children: Any) -> JobTraffic:
        if not self.answers:
            raise SwitchUnavailable("it does not answer")
        return self.traffic()

    def traffic(self) -> JobTraffic:
        return JobTraffic(dict(self.verdicts), dict(self.contributions), self.results)


class Fabric:
    """The switches of a job in three levels, and the watch over its links."""

    def __init__(self) -> None:
        self.switches = {name: Counted(name, parent) for name, parent in PARENTS.items()}
        switches = list(self.switches.values())
        self.live: Any = SimpleNamespace(
            job=tree_job(), switches=switches, leaves_epoch=False, tables=lambda: [(one, None) for one in switches]
        )
        self.ended: list[tuple[int, str]] = []
        self.now = 0.0
        self.watch = LostLinks(SimpleNamespace(), self, lambda: self.now)  # type: ignore[arg-type]

    def end(self, _live: Any, _state: JobState, why: str, reason: int) -> None:
        self.ended.append((reason, why))

    def send_up(self, leaf: str, number: int, arrives: bool = True) -> None:
        """Let a switch send a sum up, which arrives at its parent as that of the sender `number`."""
        self.switches[leaf].verdicts[Verdict.FORWARDED] += 1
        above = self.switches[PARENTS[leaf]].contributions
        above[number] = above.get(number, 0) + int(arrives)

    def states(self, before: dict[str, JobTraffic]) -> dict[str, bool]:
        found = link_states(self.live.job, before, self.traffic())
        return {str(link): silent for link, silent in found}

    def traffic(self) -> dict[str, JobTraffic]:
        return {name: switch.traffic() for name, switch in self.switches.items()}

    async def read(self, times: int = 1) -> None:
        for _ in range(times):
            self.now += 0.25
            await self.watch.check(self.live)


def test_sums_that_do_not_arrive_make_the_link_upward_silent() -> None:
    fabric = Fabric()
    before = fabric.traffic()
    fabric.send_up("leaf1", 0)
    fabric.send_up("leaf2", 1, arrives=False)
    assert fabric.states(before) == {"leaf1 -> spine": False, "leaf2 -> spine": True}


def test_numbers_of_switches_come_after_those_of_ranks() -> None:
    fabric = Fabric()
    before = fabric.traffic()
    fabric.send_up("spine", 1)
    assert fabric.states(before) == {"spine -> core": False}


def test_a_slow_rank_makes_no_link_silent() -> None:
    fabric = Fabric()
    before = fabric.traffic()
    fabric.send_up("leaf1", 0)
    fabric.switches["spine"].verdicts[Verdict.DUPLICATE] += 1
    assert fabric.states(before) == {"leaf1 -> spine": False}


def test_repeated_results_that_do_not_arrive_make_the_link_downward_silent() -> None:
    fabric = Fabric()
    fabric.switches["leaf1"].verdicts[Verdict.COMPLETED] = 20
    fabric.switches["leaf2"].verdicts[Verdict.COMPLETED] = 12
    before = fabric.traffic()
    for number, leaf in enumerate(("leaf1", "leaf2")):
        fabric.send_up(leaf, number)
    fabric.switches["spine"].verdicts[Verdict.RESENT] += 1
    assert fabric.states(before) == {
        "leaf1 -> spine": False,
        "leaf2 -> spine": False,
        "spine -> leaf2": True,
    }
    fabric.switches["leaf2"].results += 1
    fabric.switches["leaf1"].results += 1
    assert fabric.states(before)["spine -> leaf2"] is False


async def test_a_dead_link_ends_the_job_and_is_named_with_its_ports() -> None:
    fabric = Fabric()
    await fabric.read(2)  # the second one finds that no sum is completed
    for _ in range(SILENT_READINGS):
        assert not fabric.ended
        fabric.send_up("leaf1", 0)
        fabric.send_up("leaf2", 1, arrives=False)
        await fabric.read()
    ((reason, why),) = fabric.ended
    assert reason == pb.REVOCATION_REASON_SWITCH_LOST
    assert "link leaf2 -> spine is dead" in why
    assert "port 8 of leaf2 and port 7 of spine" in why


async def test_one_arrival_shows_that_the_link_lives() -> None:
    fabric = Fabric()
    await fabric.read(2)
    for reading in range(8 * SILENT_READINGS):
        fabric.send_up("leaf2", 1, arrives=reading % SILENT_READINGS == 0)
        await fabric.read()
    assert not fabric.ended


async def test_completed_sums_begin_the_count_again() -> None:
    fabric = Fabric()
    for _ in range(2 * SILENT_READINGS):
        await fabric.read(2)
        fabric.send_up("leaf2", 1, arrives=False)
        await fabric.read()
        fabric.switches["core"].verdicts[Verdict.COMPLETED] += 1
    assert not fabric.ended


@pytest.mark.parametrize("why", ["epoch", "answer"])
async def test_what_is_not_known_is_not_counted(why: str) -> None:
    fabric = Fabric()
    for _ in range(3):
        await fabric.read(2)
        for _ in range(SILENT_READINGS - 1):
            fabric.send_up("leaf2", 1, arrives=False)
            await fabric.read()
        if why == "epoch":
            for place in fabric.live.job.switches:
                place.epoch += 1
        else:
            fabric.switches["leaf1"].answers = False
            await fabric.read()
            fabric.switches["leaf1"].answers = True
    assert not fabric.ended
