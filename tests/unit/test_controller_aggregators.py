"""Jobs over aggregators: what is refused, the tables of each, the messages to agents, and changes of the epoch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from switchml.controller.errors import InvalidRequest, NoAgent, NoRoom, SwitchUnavailable
from switchml.controller.jobs.live import LiveJob
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.targets import BMV2
from tests.unit.recording_driver import ALL_SLOTS
from tests.unit.test_controller_trees import SLOTS, World, lose

SWITCHES = {"s0": "", "a1": "", "a2": ""}
BOTH = ("a1", "a2")


@pytest.fixture
async def world(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    made = World(tmp_path / "store.sqlite", SWITCHES, getattr(request, "param", {}))
    yield made
    await made.close()


def register(world: World, count: int = 2, max_ranks: int = 2) -> None:
    """Register agents of s0, h1, h2 and so on, each on another host."""
    for number in range(1, count + 1):
        where: dict[str, Any] = {
            "address": f"10.0.1.{number}",
            "host": f"host{number}",
            "mac": f"02:00:00:00:01:0{number}",
        }
        world.agent(f"h{number}", "s0", number, max_ranks, **where)


async def test_every_rank_is_at_every_aggregator(world: World) -> None:
    register(world)
    job = await world.start(3, aggregators=BOTH)
    assert [(place.switch, place.upstream) for place in job.switches] == [("a1", ""), ("a2", "")]
    assert {(place.epoch, place.slot_base, place.slots) for place in job.switches} == {(1, 0, SLOTS)}
    assert world.drivers["s0"].tables is None
    for name in BOTH:
        tables = world.drivers[name].tables
        assert tables is not None
        assert tables.owned_results
        # The port is the aggregator's, the MAC address that of the agent.
        found = [(port.rank, port.port, port.mac & 0xFF, port.udp_port) for port in tables.ranks]
        assert found == [(0, 1, 1, 40000), (1, 1, 1, 40001), (2, 1, 2, 40002)]
    [[first], [second]] = world.assignments.values()
    for order in (first, second):
        assert [(one.address, one.udp_port) for one in order.aggregators] == [("10.0.0.2", 48864), ("10.0.0.3", 48864)]
        assert list(order.wire_workers) == []
        assert order.multicast_address == ""


async def test_one_aggregator_without_agents(world: World) -> None:
    register(world)
    job = await world.start(2, aggregators=("a2",))
    assert job.over_aggregators
    [order] = world.assignments["h1"]
    assert [one.address for one in order.aggregators] == ["10.0.0.3"]
    # At the agents' own switch it is a job like any other.
    own = await world.start(2, aggregators=("s0",))
    assert not own.over_aggregators
    assert not world.assignments["h1"][1].aggregators


async def test_agents_of_all_switches_carry_ranks(world: World) -> None:
    register(world, 1)
    world.agent("h9", "a1", address="10.0.1.9", host="host9", max_ranks=2)
    job = await world.start(4, aggregators=BOTH)
    assert sorted(job.ranks_by_agent()) == ["h1", "h9"]
    with pytest.raises(NoAgent, match=r"1 ranks asked, and the 2 live agents .* have room for 0; start more agents"):
        await world.start(1, aggregators=BOTH)


@pytest.mark.parametrize("world", [{"a2": 256}], indirect=True)
async def test_values_that_differ(world: World) -> None:
    register(world)
    with pytest.raises(
        InvalidRequest, match="switch a1 has 64 values per packet and switch a2 has 256; all aggregators"
    ):
        await world.start(2, aggregators=BOTH)


async def test_slots_that_differ(world: World) -> None:
    register(world)
    world.drivers["a2"].slots = 512
    with pytest.raises(InvalidRequest, match="switch a1 has 1024 slots and switch a2 has 512; all aggregators"):
        await world.start(2, aggregators=BOTH)


async def test_an_aggregator_that_is_not_ready(world: World) -> None:
    register(world)
    world.controller.switches.drain("a2", True)
    with pytest.raises(SwitchUnavailable, match="switch a2 is drained"):
        await world.start(2, aggregators=BOTH)


async def test_loopback_addresses(world: World) -> None:
    world.agent("h1", "s0", address="127.0.0.5", host="host1")
    with pytest.raises(InvalidRequest, match=r"aggregator a1 has the address 10.0.0.2 and agent h1 has 127.0.0.5"):
        await world.start(1, aggregators=BOTH)
    for switch in world.controller.switches:
        object.__setattr__(switch.config, "address", "127.0.0.1")
    assert (await world.start(1, aggregators=BOTH)).workers == 1
    world.agent("h2", "s0", address="127.0.0.6", host="host2")
    with pytest.raises(InvalidRequest, match=r"a1 has the loopback address 127.0.0.1, and the agents are on 2 hosts"):
        await world.start(4, aggregators=BOTH)


async def test_a_p4_switch_has_ports_for_its_own_agents(world: World) -> None:
    register(world)
    config = world.controller.switches.get("a2").config
    object.__setattr__(config, "target", BMV2)
    with pytest.raises(
        InvalidRequest, match=r"aggregator a2 \(bmv2\) has a port for each host, and agent h1 is attached"
    ):
        await world.start(2, aggregators=BOTH, placement=world.at("h1", "h2"))
    with pytest.raises(NoAgent, match="the 0 live agents that can send to all aggregators"):
        await world.start(2, aggregators=BOTH)


async def test_slots_are_free_on_all(world: World) -> None:
    register(world, max_ranks=4)
    await world.start(2, slots=512, aggregators=("a1",))
    both = await world.start(2, slots=512, aggregators=BOTH)
    assert {place.slot_base for place in both.switches} == {512}
    with pytest.raises(NoRoom, match="no such range is free on all"):
        await world.start(2, slots=512, aggregators=BOTH)
    await world.controller.lifecycle.stop(both)
    assert world.free() == {ALL_SLOTS, ALL_SLOTS - 512}


async def test_shrinks_on_the_same_aggregators(world: World) -> None:
    register(world)
    job = await world.start(3, aggregators=BOTH)
    await lose(world, job, 1)
    now = world.live(job.id).job
    assert [place.switch for place in now.switches] == ["a1", "a2"]
    assert {place.epoch for place in now.switches} == {2}
    assert [len(driver.tables.ranks) for name in BOTH if (driver := world.drivers[name]).tables] == [2, 2]
    assert len(world.assignments["h2"][-1].aggregators) == 2


async def test_a_rank_restarts_at_an_agent_of_another_switch(world: World) -> None:
    register(world, 1, max_ranks=1)
    world.agent("h9", "a1", address="10.0.1.9", host="host9", max_ranks=2)
    job = await world.start(2, aggregators=BOTH, on_failure=pb.ON_FAILURE_RESTART)
    assert sorted(job.ranks_by_agent()) == ["h1", "h9"]
    lost = next(rank for rank in job.ranks if rank.agent == "h1")
    world.sessions["h1"].end("its host is gone")
    await lose(world, job, lost.rank)
    assert {rank.agent for rank in world.live(job.id).job.ranks} == {"h9"}


async def test_counters_are_those_of_all(world: World) -> None:
    register(world)
    job = await world.start(2, aggregators=BOTH)
    for name, packets in (("a1", 5), ("a2", 7)):
        world.drivers[name].packets = packets
    await world.controller.lifecycle.stop(job)
    assert job.counters["completed"] == 12


async def test_end_is_found_by_agents_of_other_switches(world: World) -> None:
    register(world)
    job = await world.start(2, aggregators=BOTH)
    live: LiveJob = world.live(job.id)
    await world.controller.lifecycle.stop(live.job)
    assert world.store.end_of_job(job.id, "s0", job.epoch) is not None
    assert world.store.end_of_job(job.id, "s0", job.epoch + 1) is None
