"""A membership over a fake native end and a fake agent that the tests control."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

import switchml
from switchml import _native
from switchml.client import membership
from switchml.client.agent_connection import AgentConnection, Attachment
from switchml.client.calls import Call
from switchml.client.membership import Membership

DEADLINE = 30.0


class Native:
    """A native end whose calls fail at once or cannot be submitted."""

    attention_fd = -1

    def __init__(self, interruption: BaseException | None = None) -> None:
        self.interruption = interruption
        self.submitted = 0
        self.abandoned = False

    def submit(self, *_: object) -> int:
        if self.interruption is not None:
            raise self.interruption
        self.submitted += 1
        return self.submitted - 1

    def wait(self, _ticket: int, _seconds: float) -> bool:
        return True

    def status(self, _ticket: int) -> str:
        return "failed"

    def release(self, _ticket: int) -> Any:
        return SimpleNamespace(status="failed", non_finite_indices=(), non_finite_count=0)

    def abandon(self) -> None:
        self.abandoned = True

    def close(self) -> None:
        pass


class Agent:
    """A connection that delivers no messages."""

    def start(self, *_: object) -> None:
        pass

    def close(self, _epoch: int, _calls: int, _loss: str) -> None:
        pass


def membership_over(native: Native) -> Membership:
    attachment = Attachment(1, "job", 1, 0, 2, bytes(16))
    return Membership(cast(AgentConnection, Agent()), attachment, cast(_native.Communicator, native))


def barrier(member: Membership) -> None:
    member.wait(*member.submit(Call(_native.KIND_BARRIER, "barrier"), 1.0, awaited=True))


def seen_by_another_thread(member: Membership) -> Callable[[object], None]:
    """A callback that succeeds only if another thread can use the membership while the callback runs."""

    def callback(error: object) -> None:
        found: list[object] = []
        thread = threading.Thread(target=lambda: found.append(member.failure), daemon=True)
        thread.start()
        thread.join(DEADLINE)
        assert found == [error], "the lock is held while the callback runs"

    return callback


def test_callbacks_come_without_the_lock_when_the_reason_of_a_failure_does_not_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(membership, "_VERDICT_SECONDS", 0.01)
    member = membership_over(Native())
    heard: list[object] = []
    member.on_failure(seen_by_another_thread(member))
    member.on_failure(heard.append)
    with pytest.raises(switchml.IntegrityError, match="rank 0 of job 'job' is wrong"):
        barrier(member)
    assert [type(error) for error in heard] == [switchml.IntegrityError]
    with pytest.raises(switchml.IntegrityError, match="This barrier was not started"):
        barrier(member)


def test_an_exception_of_a_signal_handler_ends_nothing_but_the_call() -> None:
    native = Native(KeyboardInterrupt())
    member = membership_over(native)
    with pytest.raises(KeyboardInterrupt):
        barrier(member)
    assert member.failure is None
    assert not native.abandoned
    native.interruption = None
    member.submit(Call(_native.KIND_BARRIER, "barrier"), 1.0, awaited=True)
    assert native.submitted == 1
    member.end()


def test_a_call_that_was_interrupted_does_not_keep_the_end_from_coming() -> None:
    member = membership_over(Native(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        barrier(member)
    member.end()
    assert member.condition == "closed"
