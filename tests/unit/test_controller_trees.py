"""Jobs on trees of switches: where they are placed, the tables of each switch, and changes of their epochs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from switchml.common.deadline import within
from switchml.common.switch_trees import ParentLink
from switchml.common.version import VERSION
from switchml.controller.admission.placement import Placement
from switchml.controller.admission.quotas import Quotas
from switchml.controller.admission.request import JobRequest
from switchml.controller.admission.trees import JobTree
from switchml.controller.agents import AgentSession
from switchml.controller.config import SwitchConfig
from switchml.controller.controller import Controller
from switchml.controller.errors import (
    InvalidRequest,
    NoAgent,
    NoFloats,
    NoRoom,
    PermissionDenied,
    SwitchNotFound,
    SwitchUnavailable,
)
from switchml.controller.jobs.live import LiveJob
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import Job, JobState, RankState
from switchml.controller.store.database import Store
from switchml.controller.switches import ManagedSwitch, Switches
from switchml.dataplane.constants import PROTOCOL_VERSION, TREE_NO_RANK, Format
from switchml.dataplane.targets import SOFT
from tests.unit.recording_driver import ALL_SLOTS, RecordingDriver

SLOTS = 64


class World:
    """A controller whose switches and agents are replaced; `steps` are what happened to them, in order."""

    def __init__(
        self, path: Path, parents: dict[str, str], values: dict[str, int], tenants: dict[str, str] | None = None
    ) -> None:
        self.steps: list[str] = []
        self.drivers = {name: RecordingDriver(self.steps, name, values.get(name, 64)) for name in parents}
        self.store = Store(path)
        names = list(parents)
        switches = [
            ManagedSwitch(
                SwitchConfig(
                    name=name,
                    target=SOFT,
                    address=f"10.0.0.{names.index(name) + 1}",
                    mac=f"02:00:00:00:00:0{names.index(name) + 1}",
                    p4runtime="x:1",
                    parent=ParentLink(parent, 40 + names.index(name), 60) if parent else None,
                    tenant=(tenants or {}).get(name, ""),
                ),
                self.drivers[name],
            )
            for name, parent in parents.items()
        ]
        self.controller = Controller(self.store, Switches(switches, self.store), Quotas(()))
        self.sessions: dict[str, AgentSession] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.assignments: dict[str, list[pb.Assignment]] = {}

    def agent(
        self,
        name: str,
        switch: str,
        port: int = 1,
        max_ranks: int = 8,
        *,
        address: str = "127.0.0.1",
        host: str = "here",
        mac: str = "00:00:00:00:00:00",
        tenant: str = "",
        largest_message: int = 0,
    ) -> None:
        """Register an agent that answers at once; its ranks hold no phase."""
        registration = pb.Register(
            version=VERSION,
            protocol_version=PROTOCOL_VERSION,
            name=name,
            host=host,
            address=address,
            mac=mac,
            socket=f"/run/{name}.sock",
            switch=switch,
            switch_port=port,
            max_ranks=max_ranks,
            instance="i1",
            largest_message=largest_message,
        )
        self.sessions[name] = self.controller.agents.register(registration, tenant)
        self.tasks.append(asyncio.create_task(self._answer(name)))

    async def _answer(self, name: str) -> None:
        while True:
            message = await self.sessions[name].outgoing.get()
            kind = message.WhichOneof("message")
            self.steps.append(f"{name} {kind} {getattr(message, kind).epoch}")
            if kind == "assignment":
                order = message.assignment
                self.assignments.setdefault(name, []).append(order)
                answer = pb.AgentMessage(
                    assignment_ready=pb.AssignmentReady(
                        job=order.job,
                        epoch=order.epoch,
                        endpoints=[
                            pb.Endpoint(rank=rank, address="127.0.0.1", udp_port=40000 + rank) for rank in order.ranks
                        ],
                    )
                )
                self.controller.messages.take(self.sessions[name], answer)
            elif kind == "quiesce":
                live = self.live(message.quiesce.job)
                positions = pb.Positions(job=live.job.id, epoch=live.job.epoch, fetched=bool(message.quiesce.targets))
                for rank in live.job.ranks_by_agent()[name]:
                    positions.ranks.add(rank=rank.rank, phases=[0] * live.job.slots)
                self.controller.messages.take(self.sessions[name], pb.AgentMessage(positions=positions))

    def live(self, job_id: int) -> LiveJob:
        return next(live for live in self.controller.jobs if live.job.id == job_id)

    async def start(
        self,
        workers: int,
        switch: str = "",
        slots: int = SLOTS,
        placement: Placement | None = None,
        tenant: str = "",
        **more: Any,
    ) -> Job:
        more.setdefault("on_failure", pb.ON_FAILURE_SHRINK)
        options = pb.StartJobRequest(workers=workers, switch=switch, slots=slots, **more)
        return await self.controller.lifecycle.start(JobRequest(options, tenant, placement))

    def at(self, *agents: str) -> Placement:
        """Return the placement of ranks whose processes wait at these agents."""
        return Placement([self.sessions[name] for name in agents], range(1, len(agents) + 1))

    def free(self) -> set[int]:
        """Return the numbers of free slots that switches have."""
        return {self.controller.pools.of(switch).free_slots for switch in self.controller.switches}

    async def idle(self) -> None:
        for _ in range(100):
            await asyncio.sleep(0)

    async def close(self) -> None:
        for driver in self.drivers.values():
            driver.answers.set()
        for job in self.controller.jobs.live_jobs():
            await self.controller.lifecycle.stop(job.job)
        for task in self.tasks:
            task.cancel()
        self.store.close()


RACKS = {"spine": "", "l1": "spine", "l2": "spine", "l3": "spine"}


@pytest.fixture
async def world(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    parents, values = getattr(request, "param", (RACKS, {}))
    made = World(tmp_path / "store.sqlite", parents, values)
    yield made
    await made.close()


def agents_of(world: World, switches: Iterable[str], each: int = 2, max_ranks: int = 2) -> None:
    """Register `each` agents at each switch, such as l1a and l1b."""
    for switch in switches:
        for number in range(each):
            world.agent(f"{switch}{'abcdefgh'[number]}", switch, number + 1, max_ranks)


def tree(job: Job) -> dict[str, str]:
    return {place.switch: place.upstream for place in job.switches}


# ---- placement ------------------------------------------------------------------------------------------------------


async def test_one_switch_is_enough(world: World) -> None:
    agents_of(world, ("l1", "l2"))
    job = await world.start(4)
    assert len(tree(job)) == 1
    other = await world.start(4)
    assert sorted(tree(job) | tree(other)) == ["l1", "l2"]
    for name in ("l1a", "l2a"):
        assert list(world.assignments[name][0].wire_workers) == []


async def test_ranks_go_to_as_few_switches_as_possible(world: World) -> None:
    agents_of(world, ("l1", "l2", "l3"))
    job = await world.start(6)
    assert tree(job) == {"spine": "", "l1": "spine", "l2": "spine"}
    assert [rank.switch for rank in job.ranks] == ["l1"] * 3 + ["l2"] * 3
    # The ranks of each switch are numbered on their own.
    numbers = [(list(one.ranks), list(one.wire_workers)) for (one,) in world.assignments.values()]
    assert numbers == [([0, 1], [0, 1]), ([2], [2]), ([3, 4], [0, 1]), ([5], [2])]


async def test_a_named_switch_means_it_and_those_below(world: World) -> None:
    agents_of(world, ("l1", "l2"))
    assert tree(await world.start(2, "spine")) == {"spine": "", "l1": "spine", "l2": "spine"}
    assert tree(await world.start(1, "spine")) == {"l1": ""}
    with pytest.raises(NoAgent, match=r"6 ranks asked, .* have room for 5 \(l2: 3, l1: 2\)|\(l1: 2, l2: 3\)"):
        await world.start(6, "spine")
    with pytest.raises(NoAgent, match="the 2 live agents of switch l1 have room for"):
        await world.start(5, "l1")


async def test_too_few_agents_in_the_tree(world: World) -> None:
    agents_of(world, ("l1", "l2"))
    with pytest.raises(NoAgent, match=r"9 ranks asked, .* of the tree have room for 8 \(l1: 4, l2: 4\)"):
        await world.start(9)


async def test_switches_that_are_not_ready_do_not_count(world: World) -> None:
    agents_of(world, ("l1", "l2"))
    world.controller.switches.drain("spine", True)
    with pytest.raises(NoAgent, match="have room for 4"):
        await world.start(5)
    with pytest.raises(SwitchUnavailable, match="switch spine is drained"):
        await world.start(2, "spine")
    with pytest.raises(SwitchUnavailable, match="switch spine is drained"):
        await world.start(2, placement=world.at("l1a", "l2a"))


async def test_ranks_that_wait_at_several_switches(world: World) -> None:
    agents_of(world, ("l1", "l2", "l3"))
    job = await world.start(3, placement=world.at("l3a", "l1a", "l3b"))
    assert tree(job) == {"spine": "", "l3": "spine", "l1": "spine"}
    assert list(world.assignments["l3b"][0].wire_workers) == [1]
    assert list(world.assignments["l1a"][0].wire_workers) == [0]


@pytest.mark.parametrize("world", [({"s1": "", "s2": ""}, {})], indirect=True)
async def test_ranks_without_a_common_switch(world: World) -> None:
    agents_of(world, ("s1", "s2"))
    with pytest.raises(
        InvalidRequest, match=r"s1, s2 are in different trees.*: agent s1a to switch s1 and agent s2a to"
    ):
        await world.start(2, placement=world.at("s1a", "s2a"))
    with pytest.raises(NoAgent, match="the 2 live agents of switch s1 have room for 4"):
        await world.start(5)


@pytest.mark.parametrize("world", [(RACKS, {"l2": 256})], indirect=True)
async def test_values_that_differ_in_a_tree(world: World) -> None:
    """The configuration does not have the number for every target."""
    agents_of(world, ("l1", "l2"))
    with pytest.raises(InvalidRequest, match="switch spine has 64 values per packet and switch l2 has 256"):
        await world.start(2, placement=world.at("l1a", "l2a"))


async def test_program_that_cannot_be_below_another_switch(world: World) -> None:
    agents_of(world, ("l1", "l2"))
    world.drivers["l2"].leaf = False
    with pytest.raises(InvalidRequest, match=r"program of switch l2 \(soft\) cannot be below another switch"):
        await world.start(2, placement=world.at("l1a", "l2a"))


async def test_a_leaf_has_a_bit_less_for_ranks(world: World) -> None:
    world.agent("l1a", "l1", max_ranks=64)
    world.agent("l2a", "l2", max_ranks=64)
    held = JobTree.holding(world.controller.switches, {"l1": "l1a", "l2": "l2a"})
    held.require_room({"l1": 63, "l2": 1})
    with pytest.raises(NoRoom, match=r"switch l1 \(soft\) below switch spine has at most 63 workers, not 64") as caught:
        held.require_room({"l1": 64, "l2": 1})
    assert caught.value.figures == {"workers": "64", "workers_maximum": "63"}
    with pytest.raises(NoRoom, match=r"switch spine \(soft\) has at most 62 workers and 2 switches, not 63"):
        held.require_room({"spine": 63})
    assert len(tree(await world.start(64))) == 1


# ---- slots, epochs and tables ---------------------------------------------------------------------------------------


async def test_slots_and_epochs_are_free_on_all_switches(world: World) -> None:
    agents_of(world, ("l1", "l2"))
    first = await world.start(2, "l1")
    second = await world.start(2, "l2", 128)
    assert (first.epoch, second.epoch) == (1, 1)
    both = await world.start(2, placement=world.at("l1a", "l2a"))
    assert {place.epoch for place in both.switches} == {2}
    assert {(place.slot_base, place.slots) for place in both.switches} == {(128, SLOTS)}
    with pytest.raises(NoRoom, match="no such range is free on all switches of the tree"):
        await world.start(2, slots=1024, placement=world.at("l1b", "l2b"))


async def test_tables_of_a_tree(world: World) -> None:
    agents_of(world, ("l1", "l2"), 1)
    job = await world.start(3, placement=world.at("l1a", "l2a", "l1a"))
    spine, leaf1, leaf2 = (world.drivers[name].tables for name in ("spine", "l1", "l2"))
    assert spine is not None
    assert leaf1 is not None
    assert leaf2 is not None
    assert [(port.rank, port.port, port.mac & 0xFF, port.udp_port) for port in spine.ranks] == [
        (0, 41, 2, 48864),
        (1, 42, 3, 48864),
    ]
    assert spine.parent is None
    assert [[port.rank for port in one.ranks] for one in (leaf1, leaf2)] == [[0, 1], [0]]
    assert leaf1.parent is not None
    assert leaf2.parent is not None
    assert (leaf1.parent.number, leaf2.parent.number) == (0, 1)
    assert (leaf2.parent.port, leaf2.parent.mac & 0xFF, leaf2.parent.named) == (60, 1, (0, 1))
    assert {one.secret for one in (spine, leaf1, leaf2)} == {job.secret}


async def test_lowest_switches_send_values_only_to_the_ranks_that_read_them(world: World) -> None:
    """A switch with others below gets owners that name a sender there; a program may be unable to remove values."""
    agents_of(world, ("spine", "l1", "l2"), 1)
    world.drivers["spine"].owned_results = world.drivers["l2"].owned_results = True
    await world.start(4, placement=world.at("l2a", "l1a", "spinea", "l2a"))
    owned = {name: tables.owned_results for name in world.drivers if (tables := world.drivers[name].tables) is not None}
    assert owned == {"spine": False, "l1": True, "l2": True}
    told = {name: (order.owned_results, list(order.switch_ranks)) for name, (order,) in world.assignments.items()}
    assert told == {"l2a": (True, [0, 3]), "l1a": (False, []), "spinea": (False, [])}


async def test_an_owner_can_name_127_ranks(world: World) -> None:
    agents_of(world, ("l1", "l2", "l3"), 1, max_ranks=50)
    for driver in world.drivers.values():
        driver.owned_results = True
    for workers, owned in ((127, True), (128, False)):
        job = await world.start(workers)
        orders = [orders[-1] for orders in world.assignments.values()]
        assert [(order.owned_results, bool(order.switch_ranks)) for order in orders] == [(owned, owned)] * 3
        await world.controller.lifecycle.stop(job)


@pytest.mark.parametrize(
    "world", [({"core": "", "s1": "core", "l1": "s1", "l2": "s1", "s2": "core"}, {})], indirect=True
)
async def test_three_levels(world: World) -> None:
    agents_of(world, ("l1", "l2", "s2"), 1)
    job = await world.start(3, placement=world.at("l1a", "l2a", "s2a"))
    assert tree(job) == {"core": "", "s1": "core", "l1": "s1", "l2": "s1", "s2": "core"}
    tables = {name: driver.tables for name, driver in world.drivers.items()}
    named = {name: one.parent.named for name, one in tables.items() if one is not None and one.parent is not None}
    assert named == {"s1": (0, 1), "l1": (0, 1, TREE_NO_RANK), "l2": (0, 1, TREE_NO_RANK), "s2": (0, 1)}


async def test_order_of_a_start_and_an_end(world: World) -> None:
    agents_of(world, ("l1", "l2"), 1)
    job = await world.start(2, placement=world.at("l1a", "l2a"))
    assert world.free() == {ALL_SLOTS - SLOTS, ALL_SLOTS}
    await world.idle()
    assert world.steps == [
        *("l1a assignment 1", "l2a assignment 1"),
        *("spine install 1", "l1 install 1", "l2 install 1"),
        *("l1a activation 1", "l2a activation 1"),
    ]
    world.steps.clear()
    await world.controller.lifecycle.stop(job)
    assert {step for step in world.steps if "remove" in step} == {"l2 remove 1", "l1 remove 1", "spine remove 1"}
    assert world.free() == {ALL_SLOTS}


async def lose(world: World, job: Job, *ranks: int) -> None:
    for rank in job.ranks:
        rank.state = RankState.ATTACHED
    live = world.live(job.id)
    if job.state is not JobState.RUNNING:
        world.controller.jobs.enter(live, JobState.RUNNING)
    world.steps.clear()
    for number in ranks:
        world.controller.lifecycle.rank_reached(live, job.ranks[number], RankState.LOST, "its process has ended")
    await world.idle()


async def test_old_entries_are_gone_everywhere_before_an_agent_hears_of_a_new_epoch(world: World) -> None:
    agents_of(world, ("l1", "l2"), 1)
    job = await world.start(4, placement=world.at("l1a", "l1a", "l2a", "l2a"))
    await lose(world, job, 0)
    changes = [step for step in world.steps if "quiesce" not in step]
    assert changes == [
        *("l1a assignment 2", "l2a assignment 2"),
        *("spine replace 1 by 2", "l1 replace 1 by 2", "l2 replace 1 by 2"),
        *("l1a activation 2", "l2a activation 2"),
    ]
    assert job.workers == 3
    assert [list(world.assignments[name][-1].wire_workers) for name in ("l1a", "l2a")] == [[0], [0, 1]]


async def test_a_leaf_without_ranks_leaves_the_job(world: World) -> None:
    agents_of(world, ("l1", "l2", "l3"), 1)
    job = await world.start(4, placement=world.at("l1a", "l2a", "l2a", "l3a"))
    await lose(world, job, 0)
    assert tree(job) == {"spine": "", "l2": "spine", "l3": "spine"}
    assert [step for step in world.steps if " 1 by 2" in step or "remove" in step] == [
        "spine replace 1 by 2",
        "l1 remove 1",
        "l2 replace 1 by 2",
        "l3 replace 1 by 2",
    ]
    assert world.controller.pools.of(world.controller.switches.get("l1")).free_slots == ALL_SLOTS
    # Only one leaf is left: it does not need the spine.
    await lose(world, job, 2)
    assert tree(job) == {"l2": ""}
    assert [len(world.assignments["l2a"][number].wire_workers) for number in (-1, -2)] == [0, 2]
    assert world.drivers["l2"].tables is not None
    assert world.drivers["l2"].tables.parent is None
    assert world.store.live_jobs() == [job]
    await world.controller.lifecycle.stop(job)
    assert world.free() == {ALL_SLOTS}


async def test_counters_are_those_of_the_top(world: World) -> None:
    agents_of(world, ("l1", "l2"), 1)
    job = await world.start(2, placement=world.at("l1a", "l2a"))
    world.drivers["spine"].packets, world.drivers["l1"].packets = 7, 5
    await world.controller.lifecycle.stop(job)
    assert job.counters["results"] == 7


@pytest.mark.parametrize(
    ("parents", "failure"),
    [
        (RACKS, ""),
        ({**RACKS, "l2": ""}, "switch l2 is not below switch spine since the controller was restarted"),
    ],
)
async def test_restart_of_the_controller(tmp_path: Path, parents: dict[str, str], failure: str) -> None:
    before = World(tmp_path / "store.sqlite", RACKS, {})
    agents_of(before, ("l1", "l2"), 1)
    started = await before.start(2, placement=before.at("l1a", "l2a"))
    for task in before.tasks:
        task.cancel()
    before.store.close()

    after = World(tmp_path / "store.sqlite", parents, {})
    after.controller.recovery.take_over()
    [job] = after.store.newest_jobs(1)
    assert job.failure == failure
    if not failure:
        live = after.live(started.id)
        assert [tables for _, tables in live.tables()] == [
            before.drivers[name].tables for name in ("spine", "l1", "l2")
        ]
    for held in after.controller.jobs:
        assert held.transition is not None
        held.transition.task.cancel()
    after.store.close()


# ---- formats ---------------------------------------------------------------------------------------------------------


async def test_a_job_that_asks_for_floats_is_refused_where_a_switch_does_not_add_them(world: World) -> None:
    agents_of(world, ("l1", "l2"))
    with pytest.raises(NoFloats, match=r"switch l[12] \(soft\) does not add floats; .* without --wire floats"):
        await world.start(2, adds_floats=True)
    world.drivers["l2"].formats = frozenset({Format.INT32, Format.FLOAT32})
    assert set(tree(await world.start(2, adds_floats=True))) == {"l2"}  # which has one switch more, but can do it
    world.drivers["l1"].formats = world.drivers["l2"].formats
    with pytest.raises(NoFloats, match="switch spine"):
        await world.start(2, placement=world.at("l1a", "l2a"), adds_floats=True)


async def test_floats_need_every_switch_of_a_tree_and_codes_the_lowest(world: World) -> None:
    agents_of(world, ("l1", "l2"))
    for leaf in ("l1", "l2"):
        world.drivers[leaf].formats = frozenset(Format)
    await world.start(8)
    assert set(world.assignments["l1a"][0].formats) == {Format.INT32, Format.NATURAL8, Format.DYNAMIC8}
    world.drivers["spine"].formats = frozenset({Format.INT32, Format.FLOAT32})
    await world.controller.lifecycle.stop(world.controller.jobs.live_jobs()[0].job)
    await world.start(8)
    assert set(world.assignments["l1a"][1].formats) == set(Format)


@pytest.mark.parametrize("world", [({"s1": "", "s2": ""}, {})], indirect=True)
async def test_floats_need_every_aggregator(world: World) -> None:
    world.drivers["s1"].formats = frozenset(Format)
    world.agent("a", "s1", address="10.0.0.20")
    with pytest.raises(NoFloats, match="switch s2"):
        await world.start(1, aggregators=("s1", "s2"), adds_floats=True)
    world.drivers["s2"].formats = frozenset(Format)
    await world.start(1, aggregators=("s1", "s2"), adds_floats=True)
    assert Format.FLOAT32 in world.assignments["a"][0].formats


# ---- tenants --------------------------------------------------------------------------------------------------------


async def test_a_silent_switch_delays_only_the_jobs_on_it(world: World) -> None:
    """A tenant can stop the switch on its own host at any moment, also while the controller writes its tables."""
    agents_of(world, ("l1", "l2", "l3"), max_ranks=8)
    theirs = await world.start(4, placement=world.at("l1a", "l1b", "l2a", "l2b"))
    world.drivers["l1"].answers.clear()
    stopping = asyncio.create_task(world.controller.lifecycle.stop(theirs))
    await world.idle()
    assert world.controller.pools.of(world.controller.switches.get("spine")).free_slots == ALL_SLOTS
    for placement in (world.at("l2a", "l3a"), world.at("l2a", "l2b")):
        mine = await within(30, world.start(2, placement=placement))
        await within(30, world.controller.lifecycle.stop(mine))
    assert not stopping.done()
    starting = asyncio.create_task(world.start(2, placement=world.at("l1a", "l2a")))
    await world.idle()
    mine = await within(30, world.start(2, slots=ALL_SLOTS // 2, placement=world.at("l2a", "l3a")))
    await lose(world, mine, 1)
    await world.idle()
    assert (mine.state, mine.epoch_changes[-1].lost) == (JobState.RUNNING, (1,))
    assert not starting.done()
    world.drivers["l1"].answers.set()
    await within(30, stopping)
    await within(30, starting)


async def test_a_start_takes_the_room_that_an_ending_job_has_freed_already(world: World) -> None:
    agents_of(world, ("l1", "l2"), max_ranks=8)
    theirs = await world.start(4, slots=ALL_SLOTS, placement=world.at("l1a", "l1b", "l2a", "l2b"))
    world.drivers["l1"].answers.clear()
    world.drivers["l2"].answers.clear()
    stopping = asyncio.create_task(world.controller.lifecycle.stop(theirs))
    starting = asyncio.create_task(world.start(2, placement=world.at("l2a", "l2b")))
    await world.idle()
    world.drivers["l2"].answers.set()
    await within(30, starting)
    assert not stopping.done()
    world.drivers["l1"].answers.set()
    await within(30, stopping)


async def test_the_switch_of_a_tenants_host_is_for_this_tenant(tmp_path: Path) -> None:
    owners = {"l1": "north", "l2": "south"}
    world = World(tmp_path / "store.sqlite", RACKS, {}, owners)
    for switch, tenant in (("l1", "south"), ("l1", ""), ("l2", "north")):
        with pytest.raises(PermissionDenied, match=f"switch {switch} is for agents and jobs of tenant"):
            world.agent("intruder", switch, tenant=tenant)
    for tenant in ("north", "south"):
        world.agent(f"{tenant}-1", "l1" if tenant == "north" else "l2", tenant=tenant)
        world.agent(f"{tenant}-3", "l3", tenant=tenant)
    with pytest.raises(PermissionDenied, match="switch l1 is for agents and jobs of tenant north, and not"):
        await world.start(1, switch="l1", tenant="south")
    for tenant, own in (("north", "l1"), ("south", "l2")):
        job = await world.start(1, switch=own, slots=ALL_SLOTS // 2, tenant=tenant)
        assert tree(job) == {own: ""}
        above = await world.start(2, switch="spine", slots=ALL_SLOTS // 4, tenant=tenant)
        assert tree(above) == {"spine": "", own: "spine", "l3": "spine"}
    await world.close()


async def test_a_tenant_without_a_switch(tmp_path: Path) -> None:
    world = World(tmp_path / "store.sqlite", {"l1": "", "l2": ""}, {}, {"l1": "north", "l2": "south"})
    with pytest.raises(SwitchNotFound, match="no switch for this tenant"):
        await world.start(1)
    with pytest.raises(PermissionDenied, match="switch l1 is for agents and jobs of tenant north, and not"):
        await world.start(1, aggregators=("l2", "l1"), tenant="south")
    await world.close()
