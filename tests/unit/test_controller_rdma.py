"""Agents with RDMA cards: where their jobs can be, and the entries of their queue pairs."""

from __future__ import annotations

from typing import Any

import finsy as fy
import pytest

from switchml.controller.drivers import JobTables, RankPort
from switchml.controller.drivers.p4tables import job_entities
from switchml.controller.errors import InvalidRequest
from switchml.controller.jobs.placed import PlacedJob
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import Job, Rank
from switchml.dataplane.constants import ROCEV2_QUEUE_PAIRS
from tests.unit.test_controller_trees import RACKS, World, world

__all__ = ["world"]

CARD = ROCEV2_QUEUE_PAIRS + 0x11


def rank_actions(*senders: int) -> list[tuple[str, dict[str, Any]]]:
    ranks = tuple(RankPort(number, 1, 2, 0x0A000001, sender) for number, sender in enumerate(senders))
    entities = job_entities(JobTables(3, 7, 512, 512, 3, ranks), owned_results=True)
    found = []
    for one in entities:
        if isinstance(one, fy.P4TableEntry) and one.table_id == "rank_table":
            assert isinstance(one.action, fy.P4TableAction)
            found.append((one.action.name, dict(one.action.args)))
    return found


def test_a_queue_pair_is_addressed_as_one() -> None:
    assert rank_actions(40000, CARD) == [
        ("address_rank", {"eth_dst": 2, "ipv4_dst": 0x0A000001, "udp_dst": 40000, "ranks": 1}),
        ("address_queue_pair", {"eth_dst": 2, "ipv4_dst": 0x0A000001, "queue_pair": 0x11, "ranks": 2}),
    ]


@pytest.mark.parametrize("ports", [(CARD, CARD), (40000, 40000)])
def test_ranks_of_one_endpoint_share_a_copy(ports: tuple[int, ...]) -> None:
    assert [arguments["ranks"] for _, arguments in rank_actions(*ports)] == [3, 3]


@pytest.mark.parametrize("number", [0, 65536, ROCEV2_QUEUE_PAIRS, ROCEV2_QUEUE_PAIRS + 1, 2 * ROCEV2_QUEUE_PAIRS])
def test_numbers_that_no_sender_has(number: int) -> None:
    job = Job(1, 1, "job", 1, 64, 1.0)
    job.ranks.append(Rank(0, "a", "i", "h", "/s", 1, "02:00:00:00:00:01", "leaf"))
    ready = pb.AssignmentReady(job=1, endpoints=[pb.Endpoint(rank=0, address="10.0.0.1", udp_port=number)])
    with pytest.raises(ValueError, match="which packets cannot be sent to"):
        PlacedJob(job, []).endpoints("a", ready)


async def test_placement_names_the_switch_that_takes_no_messages(world: World) -> None:
    world.agent("a", "l1", largest_message=1024)
    with pytest.raises(InvalidRequest, match="agent a sends the messages of an RDMA card, and switch l1"):
        await world.start(1, "l1")


@pytest.mark.parametrize("world", [(RACKS, dict.fromkeys(RACKS, 256))], indirect=True)
async def test_placement_names_the_sizes_that_do_not_fit(world: World) -> None:
    for driver in world.drivers.values():
        driver.rocev2 = True
    world.agent("a", "l1", largest_message=1024)
    with pytest.raises(InvalidRequest) as raised:
        await world.start(1, "l1")
    assert "have 256 values, 1056 bytes, and the RDMA card of agent a takes messages of 1024" in str(raised.value)
    assert "at most 248 values" in str(raised.value)
    world.agent("b", "l2", largest_message=2048)
    await world.start(1, "l2")


async def test_a_size_of_messages_that_no_card_has(world: World) -> None:
    with pytest.raises(InvalidRequest, match="largest_message is 4097 and must be 1 to 4096"):
        world.agent("a", "l1", largest_message=4097)
