from switchml.controller.proto import switchml_pb2 as _switchml_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReadEventsRequest(_message.Message):
    __slots__ = ("job", "after", "latest", "follow", "since", "kinds", "level", "switch")
    JOB_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    job: _switchml_pb2.JobReference
    after: int
    latest: int
    follow: bool
    since: float
    kinds: _containers.RepeatedScalarFieldContainer[str]
    level: str
    switch: str
    def __init__(self, job: _Optional[_Union[_switchml_pb2.JobReference, _Mapping]] = ..., after: _Optional[int] = ..., latest: _Optional[int] = ..., follow: bool = ..., since: _Optional[float] = ..., kinds: _Optional[_Iterable[str]] = ..., level: _Optional[str] = ..., switch: _Optional[str] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("number", "time", "kind", "level", "job_key", "job", "job_name", "epoch", "rank", "agent", "switch", "actor", "detail")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    JOB_NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    number: int
    time: float
    kind: str
    level: str
    job_key: int
    job: int
    job_name: str
    epoch: int
    rank: int
    agent: str
    switch: str
    actor: str
    detail: str
    def __init__(self, number: _Optional[int] = ..., time: _Optional[float] = ..., kind: _Optional[str] = ..., level: _Optional[str] = ..., job_key: _Optional[int] = ..., job: _Optional[int] = ..., job_name: _Optional[str] = ..., epoch: _Optional[int] = ..., rank: _Optional[int] = ..., agent: _Optional[str] = ..., switch: _Optional[str] = ..., actor: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...
