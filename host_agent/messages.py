"""Requests of training processes: one JSON object per message of at most 16 KiB, checked field by field."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Union

from switchml.common.job_numbers import MAX_PRIORITY, MAXIMUM_AGGREGATORS
from switchml.common.names import is_name
from switchml.common.printable import WORD_LENGTH
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.constants import PROTOCOL_MAX_WORLD
from switchml.host_agent.errors import BadMessage

__all__ = [
    "MESSAGE_BYTES",
    "Attach",
    "ReportedCall",
    "CheckFailed",
    "Close",
    "RanksClosed",
    "JobFailure",
    "Missing",
    "Request",
    "parse",
    "encode",
]

MESSAGE_BYTES: Final = 16 * 1024
_LARGEST_RANK: Final = PROTOCOL_MAX_WORLD - 1
_LONGEST_KEY: Final = 200
_LONGEST_WAIT: Final = 86400.0  # seconds
_ON_FAILURE: Final = {"abort": pb.ON_FAILURE_ABORT, "shrink": pb.ON_FAILURE_SHRINK, "restart": pb.ON_FAILURE_RESTART}
_UINT32: Final = 2**32 - 1
_UINT64: Final = 2**64 - 1


@dataclass(frozen=True)
class Attach:
    """A process asks for a rank of a job, which it names by name or id.

    With `create` the job may not exist yet: `job` is a key that all its ranks share, `timeout` the seconds that this
    process waits for the others, `slots` the requested pool size (0: the switch's default), `world_size` must be given,
    `on_failure` is abort, shrink or restart, `priority` orders the tenant's jobs, and `aggregators` are names of
    switches that share the job's slots.
    """

    version: str
    job: str
    rank: int
    world_size: int | None
    pid: int
    create: bool = False
    timeout: float = 0.0
    slots: int = 0
    on_failure: pb.OnFailure = pb.ON_FAILURE_ABORT
    priority: int = 0
    aggregators: tuple[str, ...] = ()


@dataclass(frozen=True)
class Close:
    """The end of the rank: in order, or with the reason (`loss`) why it cannot continue.

    `calls` is the number of calls that the process has made in `epoch`, the latest one that it knows.
    """

    epoch: int
    calls: int
    loss: str = ""


@dataclass(frozen=True)
class Missing:
    """A question: which ranks block this one."""


@dataclass(frozen=True)
class ReportedCall:
    """One collective call, as the rank made it.

    `op` is "sum" or "avg" for an all-reduce, `elements` the number of elements of its array, `root` that of a
    broadcast.
    """

    sequence: int
    operation: str
    op: str
    dtype: str
    elements: int
    root: int


@dataclass(frozen=True)
class CheckFailed:
    """The check of the result at a stream position (in chunks) does not match the rank's call."""

    position: int
    call: ReportedCall


Request = Union[Attach, Close, Missing, CheckFailed]  # noqa: UP007 - evaluated at import, also on Python 3.10


@dataclass(frozen=True)
class JobFailure:
    """The reason why a job cannot continue, as its processes are told."""

    error: str
    ranks: Sequence[int]
    message: str

    def to_message(self) -> dict[str, object]:
        """Return the event message."""
        return {"type": "failed", "error": self.error, "ranks": list(self.ranks), "message": self.message}


@dataclass(frozen=True)
class RanksClosed:
    """The ranks that have closed first, and the number of calls that they had made: no later call can end."""

    ranks: Sequence[int]
    calls: int

    def to_message(self) -> dict[str, object]:
        """Return the event message."""
        return {"type": "ranks_closed", "ranks": list(self.ranks), "calls": self.calls}


def encode(message: dict[str, object]) -> bytes:
    """Return the encoded answer or event."""
    return json.dumps(message).encode()


def parse(data: bytes) -> Request:
    """Parse a message.

    Raises:
        BadMessage: it is not a valid request; the text says why.

    """
    if len(data) > MESSAGE_BYTES:
        raise BadMessage(f"a message may have {MESSAGE_BYTES} bytes; this one has more")
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadMessage("a message must be one JSON object in UTF-8") from error
    if not isinstance(message, dict):
        raise BadMessage("a message must be a JSON object")
    kind = message.get("type")
    if kind == "attach":
        return _attach(message)
    if kind == "close":
        loss = _text(message, "loss", 500) if "loss" in message else ""
        return Close(_number(message, "epoch", _UINT32), _number(message, "calls", _UINT64), loss)
    if kind == "missing":
        return Missing()
    if kind == "check_failed":
        call = message.get("call")
        if not isinstance(call, dict):
            raise BadMessage("`call` must be a JSON object")
        return CheckFailed(
            position=_number(message, "position", _UINT64),
            call=ReportedCall(
                sequence=_number(call, "sequence", _UINT64),
                operation=_text(call, "operation"),
                op=_text(call, "op", WORD_LENGTH),  # with all of its options
                dtype=_text(call, "dtype"),
                elements=_number(call, "elements", _UINT64),
                root=_number(call, "root", _UINT32),
            ),
        )
    raise BadMessage("`type` must be attach, close, missing or check_failed")


def _attach(message: dict[str, Any]) -> Attach:
    create = message.get("create", False)
    if type(create) is not bool:
        raise BadMessage("`create` must be true or false")
    size = message.get("world_size")
    version = _text(message, "version")
    job = _text(message, "job", _LONGEST_KEY if create else 64)
    rank = _number(message, "rank", _LARGEST_RANK)
    world_size = None if size is None else _number(message, "world_size", PROTOCOL_MAX_WORLD)
    pid = _number(message, "pid", _UINT32)
    if not create:
        return Attach(version, job, rank, world_size, pid)
    if world_size is None or rank >= world_size:
        raise BadMessage(f"`world_size` must be given and more than `rank`, which is {rank}")
    if not job:
        raise BadMessage("`job` must have at least one character")
    timeout: Any = message.get("timeout")
    if type(timeout) not in (int, float) or not 0 < timeout <= _LONGEST_WAIT:  # also refuses NaN
        raise BadMessage(f"`timeout` must be a number of seconds above 0 and at most {_LONGEST_WAIT:g}")
    slots = _number(message, "slots", _UINT32)
    on_failure = message.get("on_failure", "abort")
    if not isinstance(on_failure, str) or on_failure not in _ON_FAILURE:
        raise BadMessage("`on_failure` must be abort, shrink or restart")
    policy = _ON_FAILURE[on_failure]
    priority = _number(message, "priority", MAX_PRIORITY) if "priority" in message else 0
    names = _aggregators(message)
    return Attach(version, job, rank, world_size, pid, True, float(timeout), slots, policy, priority, names)


def _aggregators(message: dict[str, Any]) -> tuple[str, ...]:
    names: Any = message.get("aggregators", [])
    if not isinstance(names, list) or len(names) > MAXIMUM_AGGREGATORS or not all(map(_is_switch_name, names)):
        raise BadMessage(f"`aggregators` must be at most {MAXIMUM_AGGREGATORS} names of switches")
    return tuple(names)


def _is_switch_name(value: object) -> bool:
    return isinstance(value, str) and is_name(value)


def _text(message: dict[str, Any], key: str, longest: int = 64) -> str:
    value = message.get(key)
    if not isinstance(value, str) or len(value) > longest or not value.isprintable():
        raise BadMessage(f"`{key}` must be a text of at most {longest} printable characters")
    return value


def _number(message: dict[str, Any], key: str, largest: int) -> int:
    value = message.get(key)
    if type(value) is not int or not 0 <= value <= largest:
        raise BadMessage(f"`{key}` must be an integer from 0 to {largest}")
    return value
