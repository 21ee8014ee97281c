"""The agent's messages for the controller: which are kept, and when they have been delivered."""

from __future__ import annotations

import asyncio

import pytest

from switchml.controller.proto import switchml_pb2 as pb
from switchml.host_agent.outbox import Outbox

HEARTBEAT = pb.AgentMessage(heartbeat=pb.Heartbeat())
EVENT = pb.AgentMessage(rank_event=pb.RankEvent(job=1))


@pytest.fixture(autouse=True)
def _without_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchml.host_agent.outbox._DELIVERY_SECONDS", 3600.0)


async def waits(delivery: asyncio.Task[None]) -> bool:
    """Let the delivery continue as far as it can; return whether it still waits."""
    for _ in range(10):
        await asyncio.sleep(0)
    return not delivery.done()


async def test_messages_are_kept_only_for_a_connected_controller() -> None:
    outbox = Outbox()
    outbox.put(EVENT)
    assert not outbox.connected
    first = outbox.connect()
    assert outbox.connected
    assert first.empty()
    outbox.put(EVENT)
    assert first.get_nowait() == EVENT
    outbox.put(HEARTBEAT)
    outbox.disconnect()
    assert not outbox.connected
    assert outbox.connect().empty()


async def test_a_delivery_ends_with_the_answer_to_the_last_heartbeat() -> None:
    outbox = Outbox()
    outbox.connect()
    outbox.put(HEARTBEAT)
    outbox.put(EVENT)
    outbox.put(HEARTBEAT)
    delivery = asyncio.create_task(outbox.answered())
    assert await waits(delivery)
    outbox.note_answer()
    assert await waits(delivery)
    outbox.note_answer()
    assert not await waits(delivery)


async def test_the_end_of_a_connection_ends_deliveries_and_its_count() -> None:
    outbox = Outbox()
    outbox.connect()
    outbox.put(HEARTBEAT)
    delivery = asyncio.create_task(outbox.answered())
    assert await waits(delivery)
    outbox.disconnect()
    assert not await waits(delivery)
    outbox.connect()
    outbox.put(HEARTBEAT)
    delivery = asyncio.create_task(outbox.answered())
    assert await waits(delivery)
    outbox.note_answer()
    assert not await waits(delivery)
