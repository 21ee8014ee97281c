"""The messages that wait to be sent to the controller."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from switchml.controller.proto import switchml_pb2 as pb

__all__ = ["Outbox"]

_DELIVERY_SECONDS: Final = 1.0  # the longest time for which a process that closes its rank waits for the controller


class Outbox:
    """The messages for the connected controller; without one they are dropped. It belongs to one event loop.

    The controller handles messages in order, and answers each heartbeat.
    """

    def __init__(self) -> None:
        self._queue: asyncio.Queue[pb.AgentMessage] | None = None  # while connected
        self._heartbeats = 0  # number sent to this controller
        self._answers = 0
        # Numbers of heartbeats without an answer, and the futures that wait for those answers.
        self._unanswered: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def connected(self) -> bool:
        """True while a controller has accepted the registration."""
        return self._queue is not None

    def connect(self) -> asyncio.Queue[pb.AgentMessage]:
        """Keep messages from now on; return their queue, from which the session with the controller sends them."""
        self._queue = asyncio.Queue()
        return self._queue

    def disconnect(self) -> None:
        """Reset the heartbeat count: heartbeats without an answer on an ended stream are never answered."""
        self._queue = None
        self._heartbeats = self._answers = 0
        while self._unanswered:
            self._wake_first()

    def put(self, message: pb.AgentMessage) -> None:
        """Send a message, unless no controller is connected."""
        if self._queue is not None:
            self._heartbeats += message.HasField("heartbeat")
            self._queue.put_nowait(message)

    async def answered(self) -> None:
        """Wait until the controller has answered the last heartbeat, for a limited time."""
        answered = asyncio.get_running_loop().create_future()
        self._unanswered.append((self._heartbeats, answered))
        await asyncio.wait({answered}, timeout=_DELIVERY_SECONDS)

    def note_answer(self) -> None:
        """Wake the waiters of the answers that have arrived."""
        self._answers += 1
        while self._unanswered and self._unanswered[0][0] <= self._answers:
            self._wake_first()

    def _wake_first(self) -> None:
        _, answered = self._unanswered.popleft()
        if not answered.done():
            answered.set_result(None)
