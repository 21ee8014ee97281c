from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OnFailure(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_FAILURE_UNSPECIFIED: _ClassVar[OnFailure]
    ON_FAILURE_ABORT: _ClassVar[OnFailure]
    ON_FAILURE_SHRINK: _ClassVar[OnFailure]
    ON_FAILURE_RESTART: _ClassVar[OnFailure]

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    JOB_STATE_PENDING: _ClassVar[JobState]
    JOB_STATE_READY: _ClassVar[JobState]
    JOB_STATE_RUNNING: _ClassVar[JobState]
    JOB_STATE_COMPLETED: _ClassVar[JobState]
    JOB_STATE_FAILED: _ClassVar[JobState]
    JOB_STATE_STOPPED: _ClassVar[JobState]

class RankState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RANK_STATE_UNSPECIFIED: _ClassVar[RankState]
    RANK_STATE_ASSIGNED: _ClassVar[RankState]
    RANK_STATE_ATTACHED: _ClassVar[RankState]
    RANK_STATE_CLOSED: _ClassVar[RankState]
    RANK_STATE_LOST: _ClassVar[RankState]

class RevocationReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REVOCATION_REASON_UNSPECIFIED: _ClassVar[RevocationReason]
    REVOCATION_REASON_JOB_COMPLETED: _ClassVar[RevocationReason]
    REVOCATION_REASON_JOB_STOPPED: _ClassVar[RevocationReason]
    REVOCATION_REASON_WORKER_LOST: _ClassVar[RevocationReason]
    REVOCATION_REASON_CALL_MISMATCH: _ClassVar[RevocationReason]
    REVOCATION_REASON_INTEGRITY: _ClassVar[RevocationReason]
    REVOCATION_REASON_JOB_FAILED: _ClassVar[RevocationReason]
    REVOCATION_REASON_SWITCH_LOST: _ClassVar[RevocationReason]
    REVOCATION_REASON_EPOCH_SPENT: _ClassVar[RevocationReason]
ON_FAILURE_UNSPECIFIED: OnFailure
ON_FAILURE_ABORT: OnFailure
ON_FAILURE_SHRINK: OnFailure
ON_FAILURE_RESTART: OnFailure
JOB_STATE_UNSPECIFIED: JobState
JOB_STATE_PENDING: JobState
JOB_STATE_READY: JobState
JOB_STATE_RUNNING: JobState
JOB_STATE_COMPLETED: JobState
JOB_STATE_FAILED: JobState
JOB_STATE_STOPPED: JobState
RANK_STATE_UNSPECIFIED: RankState
RANK_STATE_ASSIGNED: RankState
RANK_STATE_ATTACHED: RankState
RANK_STATE_CLOSED: RankState
RANK_STATE_LOST: RankState
REVOCATION_REASON_UNSPECIFIED: RevocationReason
REVOCATION_REASON_JOB_COMPLETED: RevocationReason
REVOCATION_REASON_JOB_STOPPED: RevocationReason
REVOCATION_REASON_WORKER_LOST: RevocationReason
REVOCATION_REASON_CALL_MISMATCH: RevocationReason
REVOCATION_REASON_INTEGRITY: RevocationReason
REVOCATION_REASON_JOB_FAILED: RevocationReason
REVOCATION_REASON_SWITCH_LOST: RevocationReason
REVOCATION_REASON_EPOCH_SPENT: RevocationReason

class StartJobRequest(_message.Message):
    __slots__ = ("workers", "name", "slots", "switch", "on_failure", "priority", "aggregators", "adds_floats", "agents")
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    AGGREGATORS_FIELD_NUMBER: _ClassVar[int]
    ADDS_FLOATS_FIELD_NUMBER: _ClassVar[int]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    workers: int
    name: str
    slots: int
    switch: str
    on_failure: OnFailure
    priority: int
    aggregators: _containers.RepeatedScalarFieldContainer[str]
    adds_floats: bool
    agents: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, workers: _Optional[int] = ..., name: _Optional[str] = ..., slots: _Optional[int] = ..., switch: _Optional[str] = ..., on_failure: _Optional[_Union[OnFailure, str]] = ..., priority: _Optional[int] = ..., aggregators: _Optional[_Iterable[str]] = ..., adds_floats: bool = ..., agents: _Optional[_Iterable[str]] = ...) -> None: ...

class JobReference(_message.Message):
    __slots__ = ("id", "name")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("include_ended",)
    INCLUDE_ENDED_FIELD_NUMBER: _ClassVar[int]
    include_ended: bool
    def __init__(self, include_ended: bool = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("id", "name", "state", "failure", "workers", "epoch", "switches", "values_per_packet", "ranks", "created", "ended", "counters", "key", "on_failure", "generation", "changes", "tenant", "priority")
    class CountersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    VALUES_PER_PACKET_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    state: JobState
    failure: str
    workers: int
    epoch: int
    switches: _containers.RepeatedCompositeFieldContainer[JobSwitch]
    values_per_packet: int
    ranks: _containers.RepeatedCompositeFieldContainer[Rank]
    created: float
    ended: float
    counters: _containers.ScalarMap[str, int]
    key: int
    on_failure: OnFailure
    generation: int
    changes: _containers.RepeatedCompositeFieldContainer[EpochChange]
    tenant: str
    priority: int
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., failure: _Optional[str] = ..., workers: _Optional[int] = ..., epoch: _Optional[int] = ..., switches: _Optional[_Iterable[_Union[JobSwitch, _Mapping]]] = ..., values_per_packet: _Optional[int] = ..., ranks: _Optional[_Iterable[_Union[Rank, _Mapping]]] = ..., created: _Optional[float] = ..., ended: _Optional[float] = ..., counters: _Optional[_Mapping[str, int]] = ..., key: _Optional[int] = ..., on_failure: _Optional[_Union[OnFailure, str]] = ..., generation: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[EpochChange, _Mapping]]] = ..., tenant: _Optional[str] = ..., priority: _Optional[int] = ...) -> None: ...

class JobSwitch(_message.Message):
    __slots__ = ("switch", "epoch", "slot_base", "slots", "group", "upstream")
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SLOT_BASE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    UPSTREAM_FIELD_NUMBER: _ClassVar[int]
    switch: str
    epoch: int
    slot_base: int
    slots: int
    group: int
    upstream: str
    def __init__(self, switch: _Optional[str] = ..., epoch: _Optional[int] = ..., slot_base: _Optional[int] = ..., slots: _Optional[int] = ..., group: _Optional[int] = ..., upstream: _Optional[str] = ...) -> None: ...

class EpochChange(_message.Message):
    __slots__ = ("epoch", "workers", "lost", "joined", "reason", "time")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    workers: int
    lost: _containers.RepeatedScalarFieldContainer[int]
    joined: _containers.RepeatedScalarFieldContainer[int]
    reason: str
    time: float
    def __init__(self, epoch: _Optional[int] = ..., workers: _Optional[int] = ..., lost: _Optional[_Iterable[int]] = ..., joined: _Optional[_Iterable[int]] = ..., reason: _Optional[str] = ..., time: _Optional[float] = ...) -> None: ...

class Rank(_message.Message):
    __slots__ = ("rank", "state", "agent", "host", "agent_socket", "position", "exit_code", "counters", "worker", "idle_seconds", "switch")
    RANK_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    AGENT_SOCKET_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    IDLE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    rank: int
    state: RankState
    agent: str
    host: str
    agent_socket: str
    position: int
    exit_code: int
    counters: RankCounters
    worker: int
    idle_seconds: float
    switch: str
    def __init__(self, rank: _Optional[int] = ..., state: _Optional[_Union[RankState, str]] = ..., agent: _Optional[str] = ..., host: _Optional[str] = ..., agent_socket: _Optional[str] = ..., position: _Optional[int] = ..., exit_code: _Optional[int] = ..., counters: _Optional[_Union[RankCounters, _Mapping]] = ..., worker: _Optional[int] = ..., idle_seconds: _Optional[float] = ..., switch: _Optional[str] = ...) -> None: ...

class RankCounters(_message.Message):
    __slots__ = ("sent", "received", "retransmissions", "fast_retransmissions", "ignored", "round_trip_seconds", "sent_without_values")
    SENT_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    RETRANSMISSIONS_FIELD_NUMBER: _ClassVar[int]
    FAST_RETRANSMISSIONS_FIELD_NUMBER: _ClassVar[int]
    IGNORED_FIELD_NUMBER: _ClassVar[int]
    ROUND_TRIP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SENT_WITHOUT_VALUES_FIELD_NUMBER: _ClassVar[int]
    sent: int
    received: int
    retransmissions: int
    fast_retransmissions: int
    ignored: int
    round_trip_seconds: float
    sent_without_values: int
    def __init__(self, sent: _Optional[int] = ..., received: _Optional[int] = ..., retransmissions: _Optional[int] = ..., fast_retransmissions: _Optional[int] = ..., ignored: _Optional[int] = ..., round_trip_seconds: _Optional[float] = ..., sent_without_values: _Optional[int] = ...) -> None: ...

class ProfileRequest(_message.Message):
    __slots__ = ("job", "calls")
    JOB_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    job: JobReference
    calls: int
    def __init__(self, job: _Optional[_Union[JobReference, _Mapping]] = ..., calls: _Optional[int] = ...) -> None: ...

class JobProfile(_message.Message):
    __slots__ = ("job", "name", "epoch", "ranks", "missing")
    JOB_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    job: int
    name: str
    epoch: int
    ranks: _containers.RepeatedCompositeFieldContainer[RankProfile]
    missing: _containers.RepeatedCompositeFieldContainer[MissingProfile]
    def __init__(self, job: _Optional[int] = ..., name: _Optional[str] = ..., epoch: _Optional[int] = ..., ranks: _Optional[_Iterable[_Union[RankProfile, _Mapping]]] = ..., missing: _Optional[_Iterable[_Union[MissingProfile, _Mapping]]] = ...) -> None: ...

class MissingProfile(_message.Message):
    __slots__ = ("agent", "ranks", "reason")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    agent: str
    ranks: _containers.RepeatedScalarFieldContainer[int]
    reason: str
    def __init__(self, agent: _Optional[str] = ..., ranks: _Optional[_Iterable[int]] = ..., reason: _Optional[str] = ...) -> None: ...

class RankProfile(_message.Message):
    __slots__ = ("rank", "agent", "calls", "bytes", "call_time_ns", "calls_by_duration", "quantize_ns", "wait_ns", "dequantize_ns", "sleeps", "send_ns", "receive_ns", "sent_bytes", "received_bytes", "round_trips_by_duration", "round_trip_time_ns", "sum_ns", "counters", "latest", "taken_at_ns", "attached", "sparse_calls_dense")
    RANK_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CALL_TIME_NS_FIELD_NUMBER: _ClassVar[int]
    CALLS_BY_DURATION_FIELD_NUMBER: _ClassVar[int]
    QUANTIZE_NS_FIELD_NUMBER: _ClassVar[int]
    WAIT_NS_FIELD_NUMBER: _ClassVar[int]
    DEQUANTIZE_NS_FIELD_NUMBER: _ClassVar[int]
    SLEEPS_FIELD_NUMBER: _ClassVar[int]
    SEND_NS_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_NS_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROUND_TRIPS_BY_DURATION_FIELD_NUMBER: _ClassVar[int]
    ROUND_TRIP_TIME_NS_FIELD_NUMBER: _ClassVar[int]
    SUM_NS_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    TAKEN_AT_NS_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    SPARSE_CALLS_DENSE_FIELD_NUMBER: _ClassVar[int]
    rank: int
    agent: str
    calls: int
    bytes: int
    call_time_ns: int
    calls_by_duration: _containers.RepeatedScalarFieldContainer[int]
    quantize_ns: int
    wait_ns: int
    dequantize_ns: int
    sleeps: int
    send_ns: int
    receive_ns: int
    sent_bytes: int
    received_bytes: int
    round_trips_by_duration: _containers.RepeatedScalarFieldContainer[int]
    round_trip_time_ns: int
    sum_ns: int
    counters: RankCounters
    latest: _containers.RepeatedCompositeFieldContainer[CallProfile]
    taken_at_ns: int
    attached: bool
    sparse_calls_dense: int
    def __init__(self, rank: _Optional[int] = ..., agent: _Optional[str] = ..., calls: _Optional[int] = ..., bytes: _Optional[int] = ..., call_time_ns: _Optional[int] = ..., calls_by_duration: _Optional[_Iterable[int]] = ..., quantize_ns: _Optional[int] = ..., wait_ns: _Optional[int] = ..., dequantize_ns: _Optional[int] = ..., sleeps: _Optional[int] = ..., send_ns: _Optional[int] = ..., receive_ns: _Optional[int] = ..., sent_bytes: _Optional[int] = ..., received_bytes: _Optional[int] = ..., round_trips_by_duration: _Optional[_Iterable[int]] = ..., round_trip_time_ns: _Optional[int] = ..., sum_ns: _Optional[int] = ..., counters: _Optional[_Union[RankCounters, _Mapping]] = ..., latest: _Optional[_Iterable[_Union[CallProfile, _Mapping]]] = ..., taken_at_ns: _Optional[int] = ..., attached: bool = ..., sparse_calls_dense: _Optional[int] = ...) -> None: ...

class CallProfile(_message.Message):
    __slots__ = ("sequence", "operation", "bytes", "submitted_ns", "begun_ns", "answered_ns", "ended_ns", "quantize_ns", "wait_ns", "dequantize_ns", "dtype")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_NS_FIELD_NUMBER: _ClassVar[int]
    BEGUN_NS_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_NS_FIELD_NUMBER: _ClassVar[int]
    ENDED_NS_FIELD_NUMBER: _ClassVar[int]
    QUANTIZE_NS_FIELD_NUMBER: _ClassVar[int]
    WAIT_NS_FIELD_NUMBER: _ClassVar[int]
    DEQUANTIZE_NS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    operation: str
    bytes: int
    submitted_ns: int
    begun_ns: int
    answered_ns: int
    ended_ns: int
    quantize_ns: int
    wait_ns: int
    dequantize_ns: int
    dtype: str
    def __init__(self, sequence: _Optional[int] = ..., operation: _Optional[str] = ..., bytes: _Optional[int] = ..., submitted_ns: _Optional[int] = ..., begun_ns: _Optional[int] = ..., answered_ns: _Optional[int] = ..., ended_ns: _Optional[int] = ..., quantize_ns: _Optional[int] = ..., wait_ns: _Optional[int] = ..., dequantize_ns: _Optional[int] = ..., dtype: _Optional[str] = ...) -> None: ...

class ExitReport(_message.Message):
    __slots__ = ("job", "rank", "exit_code", "final")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    job: JobReference
    rank: int
    exit_code: int
    final: bool
    def __init__(self, job: _Optional[_Union[JobReference, _Mapping]] = ..., rank: _Optional[int] = ..., exit_code: _Optional[int] = ..., final: bool = ...) -> None: ...

class AgentMessage(_message.Message):
    __slots__ = ("register", "heartbeat", "assignment_ready", "assignment_failed", "rank_event", "rank_announcement", "rank_withdrawal", "positions", "rank_profiles", "probe_answer")
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_READY_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FAILED_FIELD_NUMBER: _ClassVar[int]
    RANK_EVENT_FIELD_NUMBER: _ClassVar[int]
    RANK_ANNOUNCEMENT_FIELD_NUMBER: _ClassVar[int]
    RANK_WITHDRAWAL_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    RANK_PROFILES_FIELD_NUMBER: _ClassVar[int]
    PROBE_ANSWER_FIELD_NUMBER: _ClassVar[int]
    register: Register
    heartbeat: Heartbeat
    assignment_ready: AssignmentReady
    assignment_failed: AssignmentFailed
    rank_event: RankEvent
    rank_announcement: RankAnnouncement
    rank_withdrawal: RankWithdrawal
    positions: Positions
    rank_profiles: RankProfiles
    probe_answer: ProbeAnswer
    def __init__(self, register: _Optional[_Union[Register, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., assignment_ready: _Optional[_Union[AssignmentReady, _Mapping]] = ..., assignment_failed: _Optional[_Union[AssignmentFailed, _Mapping]] = ..., rank_event: _Optional[_Union[RankEvent, _Mapping]] = ..., rank_announcement: _Optional[_Union[RankAnnouncement, _Mapping]] = ..., rank_withdrawal: _Optional[_Union[RankWithdrawal, _Mapping]] = ..., positions: _Optional[_Union[Positions, _Mapping]] = ..., rank_profiles: _Optional[_Union[RankProfiles, _Mapping]] = ..., probe_answer: _Optional[_Union[ProbeAnswer, _Mapping]] = ...) -> None: ...

class ControllerMessage(_message.Message):
    __slots__ = ("welcome", "assignment", "activation", "revocation", "rendezvous_refusal", "quiesce", "rendezvous_return", "alive", "profile_order", "ranks_closed", "pause", "probe_order")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_FIELD_NUMBER: _ClassVar[int]
    REVOCATION_FIELD_NUMBER: _ClassVar[int]
    RENDEZVOUS_REFUSAL_FIELD_NUMBER: _ClassVar[int]
    QUIESCE_FIELD_NUMBER: _ClassVar[int]
    RENDEZVOUS_RETURN_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    PROFILE_ORDER_FIELD_NUMBER: _ClassVar[int]
    RANKS_CLOSED_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    PROBE_ORDER_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    assignment: Assignment
    activation: Activation
    revocation: Revocation
    rendezvous_refusal: RendezvousRefusal
    quiesce: Quiesce
    rendezvous_return: RendezvousReturn
    alive: Alive
    profile_order: ProfileOrder
    ranks_closed: RanksClosed
    pause: Pause
    probe_order: ProbeOrder
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., assignment: _Optional[_Union[Assignment, _Mapping]] = ..., activation: _Optional[_Union[Activation, _Mapping]] = ..., revocation: _Optional[_Union[Revocation, _Mapping]] = ..., rendezvous_refusal: _Optional[_Union[RendezvousRefusal, _Mapping]] = ..., quiesce: _Optional[_Union[Quiesce, _Mapping]] = ..., rendezvous_return: _Optional[_Union[RendezvousReturn, _Mapping]] = ..., alive: _Optional[_Union[Alive, _Mapping]] = ..., profile_order: _Optional[_Union[ProfileOrder, _Mapping]] = ..., ranks_closed: _Optional[_Union[RanksClosed, _Mapping]] = ..., pause: _Optional[_Union[Pause, _Mapping]] = ..., probe_order: _Optional[_Union[ProbeOrder, _Mapping]] = ...) -> None: ...

class Register(_message.Message):
    __slots__ = ("version", "protocol_version", "name", "host", "address", "mac", "socket", "switch", "switch_port", "max_ranks", "pid", "instance", "largest_message")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MAC_FIELD_NUMBER: _ClassVar[int]
    SOCKET_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    SWITCH_PORT_FIELD_NUMBER: _ClassVar[int]
    MAX_RANKS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    LARGEST_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    version: str
    protocol_version: int
    name: str
    host: str
    address: str
    mac: str
    socket: str
    switch: str
    switch_port: int
    max_ranks: int
    pid: int
    instance: str
    largest_message: int
    def __init__(self, version: _Optional[str] = ..., protocol_version: _Optional[int] = ..., name: _Optional[str] = ..., host: _Optional[str] = ..., address: _Optional[str] = ..., mac: _Optional[str] = ..., socket: _Optional[str] = ..., switch: _Optional[str] = ..., switch_port: _Optional[int] = ..., max_ranks: _Optional[int] = ..., pid: _Optional[int] = ..., instance: _Optional[str] = ..., largest_message: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("version", "heartbeat_seconds")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    version: str
    heartbeat_seconds: float
    def __init__(self, version: _Optional[str] = ..., heartbeat_seconds: _Optional[float] = ...) -> None: ...

class Alive(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("ranks",)
    RANKS_FIELD_NUMBER: _ClassVar[int]
    ranks: _containers.RepeatedCompositeFieldContainer[RankStatus]
    def __init__(self, ranks: _Optional[_Iterable[_Union[RankStatus, _Mapping]]] = ...) -> None: ...

class RankStatus(_message.Message):
    __slots__ = ("job", "epoch", "rank", "position", "counters", "epoch_spent")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_SPENT_FIELD_NUMBER: _ClassVar[int]
    job: int
    epoch: int
    rank: int
    position: int
    counters: RankCounters
    epoch_spent: bool
    def __init__(self, job: _Optional[int] = ..., epoch: _Optional[int] = ..., rank: _Optional[int] = ..., position: _Optional[int] = ..., counters: _Optional[_Union[RankCounters, _Mapping]] = ..., epoch_spent: bool = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("job", "epoch", "name", "world_size", "ranks", "slot_base", "slots", "values_per_packet", "switch_address", "switch_udp_port", "announcements", "multicast_address", "on_failure", "generation", "succession", "secret", "workers", "optional_values", "owned_results", "wire_workers", "switch_ranks", "priority", "tenant", "aggregators", "formats", "check_key", "one_port")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    SLOT_BASE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    VALUES_PER_PACKET_FIELD_NUMBER: _ClassVar[int]
    SWITCH_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SWITCH_UDP_PORT_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCEMENTS_FIELD_NUMBER: _ClassVar[int]
    MULTICAST_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SUCCESSION_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    OPTIONAL_VALUES_FIELD_NUMBER: _ClassVar[int]
    OWNED_RESULTS_FIELD_NUMBER: _ClassVar[int]
    WIRE_WORKERS_FIELD_NUMBER: _ClassVar[int]
    SWITCH_RANKS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    AGGREGATORS_FIELD_NUMBER: _ClassVar[int]
    FORMATS_FIELD_NUMBER: _ClassVar[int]
    CHECK_KEY_FIELD_NUMBER: _ClassVar[int]
    ONE_PORT_FIELD_NUMBER: _ClassVar[int]
    job: int
    epoch: int
    name: str
    world_size: int
    ranks: _containers.RepeatedScalarFieldContainer[int]
    slot_base: int
    slots: int
    values_per_packet: int
    switch_address: str
    switch_udp_port: int
    announcements: _containers.RepeatedScalarFieldContainer[int]
    multicast_address: str
    on_failure: OnFailure
    generation: int
    succession: Succession
    secret: int
    workers: _containers.RepeatedScalarFieldContainer[int]
    optional_values: bool
    owned_results: bool
    wire_workers: _containers.RepeatedScalarFieldContainer[int]
    switch_ranks: _containers.RepeatedScalarFieldContainer[int]
    priority: int
    tenant: str
    aggregators: _containers.RepeatedCompositeFieldContainer[Aggregator]
    formats: _containers.RepeatedScalarFieldContainer[int]
    check_key: bytes
    one_port: bool
    def __init__(self, job: _Optional[int] = ..., epoch: _Optional[int] = ..., name: _Optional[str] = ..., world_size: _Optional[int] = ..., ranks: _Optional[_Iterable[int]] = ..., slot_base: _Optional[int] = ..., slots: _Optional[int] = ..., values_per_packet: _Optional[int] = ..., switch_address: _Optional[str] = ..., switch_udp_port: _Optional[int] = ..., announcements: _Optional[_Iterable[int]] = ..., multicast_address: _Optional[str] = ..., on_failure: _Optional[_Union[OnFailure, str]] = ..., generation: _Optional[int] = ..., succession: _Optional[_Union[Succession, _Mapping]] = ..., secret: _Optional[int] = ..., workers: _Optional[_Iterable[int]] = ..., optional_values: bool = ..., owned_results: bool = ..., wire_workers: _Optional[_Iterable[int]] = ..., switch_ranks: _Optional[_Iterable[int]] = ..., priority: _Optional[int] = ..., tenant: _Optional[str] = ..., aggregators: _Optional[_Iterable[_Union[Aggregator, _Mapping]]] = ..., formats: _Optional[_Iterable[int]] = ..., check_key: _Optional[bytes] = ..., one_port: bool = ...) -> None: ...

class Aggregator(_message.Message):
    __slots__ = ("address", "udp_port")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    UDP_PORT_FIELD_NUMBER: _ClassVar[int]
    address: str
    udp_port: int
    def __init__(self, address: _Optional[str] = ..., udp_port: _Optional[int] = ...) -> None: ...

class Succession(_message.Message):
    __slots__ = ("previous_epoch", "previous_ranks", "lost", "joined", "message")
    PREVIOUS_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_RANKS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    previous_epoch: int
    previous_ranks: _containers.RepeatedScalarFieldContainer[int]
    lost: _containers.RepeatedScalarFieldContainer[int]
    joined: _containers.RepeatedScalarFieldContainer[int]
    message: str
    def __init__(self, previous_epoch: _Optional[int] = ..., previous_ranks: _Optional[_Iterable[int]] = ..., lost: _Optional[_Iterable[int]] = ..., joined: _Optional[_Iterable[int]] = ..., message: _Optional[str] = ...) -> None: ...

class Quiesce(_message.Message):
    __slots__ = ("job", "epoch", "targets")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    job: int
    epoch: int
    targets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, job: _Optional[int] = ..., epoch: _Optional[int] = ..., targets: _Optional[_Iterable[int]] = ...) -> None: ...

class Positions(_message.Message):
    __slots__ = ("job", "epoch", "fetched", "ranks")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FETCHED_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    job: int
    epoch: int
    fetched: bool
    ranks: _containers.RepeatedCompositeFieldContainer[RankPositions]
    def __init__(self, job: _Optional[int] = ..., epoch: _Optional[int] = ..., fetched: bool = ..., ranks: _Optional[_Iterable[_Union[RankPositions, _Mapping]]] = ...) -> None: ...

class RankPositions(_message.Message):
    __slots__ = ("rank", "phases")
    RANK_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    rank: int
    phases: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, rank: _Optional[int] = ..., phases: _Optional[_Iterable[int]] = ...) -> None: ...

class AssignmentReady(_message.Message):
    __slots__ = ("job", "epoch", "endpoints")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    job: int
    epoch: int
    endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    def __init__(self, job: _Optional[int] = ..., epoch: _Optional[int] = ..., endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping]]] = ...) -> None: ...

class Endpoint(_message.Message):
    __slots__ = ("rank", "address", "udp_port")
    RANK_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    UDP_PORT_FIELD_NUMBER: _ClassVar[int]
    rank: int
    address: str
    udp_port: int
    def __init__(self, rank: _Optional[int] = ..., address: _Optional[str] = ..., udp_port: _Optional[int] = ...) -> None: ...

class AssignmentFailed(_message.Message):
    __slots__ = ("job", "epoch", "reason")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job: int
    epoch: int
    reason: str
    def __init__(self, job: _Optional[int] = ..., epoch: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Activation(_message.Message):
    __slots__ = ("job", "epoch")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    job: int
    epoch: int
    def __init__(self, job: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class Pause(_message.Message):
    __slots__ = ("job", "epoch", "paused")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    job: int
    epoch: int
    paused: bool
    def __init__(self, job: _Optional[int] = ..., epoch: _Optional[int] = ..., paused: bool = ...) -> None: ...

class Revocation(_message.Message):
    __slots__ = ("job", "epoch", "reason", "ranks", "message")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    job: int
    epoch: int
    reason: RevocationReason
    ranks: _containers.RepeatedScalarFieldContainer[int]
    message: str
    def __init__(self, job: _Optional[int] = ..., epoch: _Optional[int] = ..., reason: _Optional[_Union[RevocationReason, str]] = ..., ranks: _Optional[_Iterable[int]] = ..., message: _Optional[str] = ...) -> None: ...

class RankEvent(_message.Message):
    __slots__ = ("job", "epoch", "rank", "kind", "detail", "call", "position", "calls")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[RankEvent.Kind]
        KIND_ATTACHED: _ClassVar[RankEvent.Kind]
        KIND_CLOSED: _ClassVar[RankEvent.Kind]
        KIND_LOST: _ClassVar[RankEvent.Kind]
        KIND_CHECK_FAILED: _ClassVar[RankEvent.Kind]
        KIND_SWITCH_GONE: _ClassVar[RankEvent.Kind]
    KIND_UNSPECIFIED: RankEvent.Kind
    KIND_ATTACHED: RankEvent.Kind
    KIND_CLOSED: RankEvent.Kind
    KIND_LOST: RankEvent.Kind
    KIND_CHECK_FAILED: RankEvent.Kind
    KIND_SWITCH_GONE: RankEvent.Kind
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    job: int
    epoch: int
    rank: int
    kind: RankEvent.Kind
    detail: str
    call: Call
    position: int
    calls: int
    def __init__(self, job: _Optional[int] = ..., epoch: _Optional[int] = ..., rank: _Optional[int] = ..., kind: _Optional[_Union[RankEvent.Kind, str]] = ..., detail: _Optional[str] = ..., call: _Optional[_Union[Call, _Mapping]] = ..., position: _Optional[int] = ..., calls: _Optional[int] = ...) -> None: ...

class RanksClosed(_message.Message):
    __slots__ = ("job", "epoch", "ranks", "calls")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    job: int
    epoch: int
    ranks: _containers.RepeatedScalarFieldContainer[int]
    calls: int
    def __init__(self, job: _Optional[int] = ..., epoch: _Optional[int] = ..., ranks: _Optional[_Iterable[int]] = ..., calls: _Optional[int] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("sequence", "operation", "dtype", "elements", "root", "op")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    operation: str
    dtype: str
    elements: int
    root: int
    op: str
    def __init__(self, sequence: _Optional[int] = ..., operation: _Optional[str] = ..., dtype: _Optional[str] = ..., elements: _Optional[int] = ..., root: _Optional[int] = ..., op: _Optional[str] = ...) -> None: ...

class RankAnnouncement(_message.Message):
    __slots__ = ("announcement", "key", "rank", "world_size", "slots", "wait_seconds", "on_failure", "priority", "aggregators")
    ANNOUNCEMENT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    AGGREGATORS_FIELD_NUMBER: _ClassVar[int]
    announcement: int
    key: str
    rank: int
    world_size: int
    slots: int
    wait_seconds: float
    on_failure: OnFailure
    priority: int
    aggregators: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, announcement: _Optional[int] = ..., key: _Optional[str] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., slots: _Optional[int] = ..., wait_seconds: _Optional[float] = ..., on_failure: _Optional[_Union[OnFailure, str]] = ..., priority: _Optional[int] = ..., aggregators: _Optional[_Iterable[str]] = ...) -> None: ...

class RankWithdrawal(_message.Message):
    __slots__ = ("announcement",)
    ANNOUNCEMENT_FIELD_NUMBER: _ClassVar[int]
    announcement: int
    def __init__(self, announcement: _Optional[int] = ...) -> None: ...

class RendezvousRefusal(_message.Message):
    __slots__ = ("announcement", "error", "message")
    ANNOUNCEMENT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    announcement: int
    error: str
    message: str
    def __init__(self, announcement: _Optional[int] = ..., error: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class RendezvousReturn(_message.Message):
    __slots__ = ("announcement", "job", "epoch", "rank")
    ANNOUNCEMENT_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    announcement: int
    job: int
    epoch: int
    rank: int
    def __init__(self, announcement: _Optional[int] = ..., job: _Optional[int] = ..., epoch: _Optional[int] = ..., rank: _Optional[int] = ...) -> None: ...

class ProfileOrder(_message.Message):
    __slots__ = ("number", "job", "epoch", "calls")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    number: int
    job: int
    epoch: int
    calls: int
    def __init__(self, number: _Optional[int] = ..., job: _Optional[int] = ..., epoch: _Optional[int] = ..., calls: _Optional[int] = ...) -> None: ...

class RankProfiles(_message.Message):
    __slots__ = ("number", "ranks")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    number: int
    ranks: _containers.RepeatedCompositeFieldContainer[RankProfile]
    def __init__(self, number: _Optional[int] = ..., ranks: _Optional[_Iterable[_Union[RankProfile, _Mapping]]] = ...) -> None: ...

class ListAgentsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListAgentsResponse(_message.Message):
    __slots__ = ("agents",)
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedCompositeFieldContainer[Agent]
    def __init__(self, agents: _Optional[_Iterable[_Union[Agent, _Mapping]]] = ...) -> None: ...

class Agent(_message.Message):
    __slots__ = ("registration", "live", "last_heartbeat", "ranks_in_use", "tenant", "shared", "name")
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    LAST_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    RANKS_IN_USE_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    registration: Register
    live: bool
    last_heartbeat: float
    ranks_in_use: int
    tenant: str
    shared: bool
    name: str
    def __init__(self, registration: _Optional[_Union[Register, _Mapping]] = ..., live: bool = ..., last_heartbeat: _Optional[float] = ..., ranks_in_use: _Optional[int] = ..., tenant: _Optional[str] = ..., shared: bool = ..., name: _Optional[str] = ...) -> None: ...

class ProbeOrder(_message.Message):
    __slots__ = ("number", "open", "measure", "close")
    class Open(_message.Message):
        __slots__ = ("key",)
        KEY_FIELD_NUMBER: _ClassVar[int]
        key: bytes
        def __init__(self, key: _Optional[bytes] = ...) -> None: ...
    class Measure(_message.Message):
        __slots__ = ("address", "port", "bytes", "seconds")
        ADDRESS_FIELD_NUMBER: _ClassVar[int]
        PORT_FIELD_NUMBER: _ClassVar[int]
        BYTES_FIELD_NUMBER: _ClassVar[int]
        SECONDS_FIELD_NUMBER: _ClassVar[int]
        address: str
        port: int
        bytes: int
        seconds: float
        def __init__(self, address: _Optional[str] = ..., port: _Optional[int] = ..., bytes: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...
    class Close(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    MEASURE_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    number: int
    open: ProbeOrder.Open
    measure: ProbeOrder.Measure
    close: ProbeOrder.Close
    def __init__(self, number: _Optional[int] = ..., open: _Optional[_Union[ProbeOrder.Open, _Mapping]] = ..., measure: _Optional[_Union[ProbeOrder.Measure, _Mapping]] = ..., close: _Optional[_Union[ProbeOrder.Close, _Mapping]] = ...) -> None: ...

class ProbeAnswer(_message.Message):
    __slots__ = ("number", "failure", "port", "round_trip", "bytes_per_second", "bytes_per_second_back")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    ROUND_TRIP_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_BACK_FIELD_NUMBER: _ClassVar[int]
    number: int
    failure: str
    port: int
    round_trip: float
    bytes_per_second: float
    bytes_per_second_back: float
    def __init__(self, number: _Optional[int] = ..., failure: _Optional[str] = ..., port: _Optional[int] = ..., round_trip: _Optional[float] = ..., bytes_per_second: _Optional[float] = ..., bytes_per_second_back: _Optional[float] = ...) -> None: ...

class ProbeRequest(_message.Message):
    __slots__ = ("bytes",)
    BYTES_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    def __init__(self, bytes: _Optional[int] = ...) -> None: ...

class ProbeResult(_message.Message):
    __slots__ = ("time", "agents", "pairs", "left_out")
    TIME_FIELD_NUMBER: _ClassVar[int]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    time: float
    agents: _containers.RepeatedCompositeFieldContainer[ProbedAgent]
    pairs: _containers.RepeatedCompositeFieldContainer[ProbedPair]
    left_out: _containers.RepeatedCompositeFieldContainer[LeftOutAgent]
    def __init__(self, time: _Optional[float] = ..., agents: _Optional[_Iterable[_Union[ProbedAgent, _Mapping]]] = ..., pairs: _Optional[_Iterable[_Union[ProbedPair, _Mapping]]] = ..., left_out: _Optional[_Iterable[_Union[LeftOutAgent, _Mapping]]] = ...) -> None: ...

class ProbedAgent(_message.Message):
    __slots__ = ("name", "host", "address")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    name: str
    host: str
    address: str
    def __init__(self, name: _Optional[str] = ..., host: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class ProbedPair(_message.Message):
    __slots__ = ("one", "other", "round_trip", "bytes_per_second", "bytes_per_second_back")
    ONE_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    ROUND_TRIP_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_BACK_FIELD_NUMBER: _ClassVar[int]
    one: int
    other: int
    round_trip: float
    bytes_per_second: float
    bytes_per_second_back: float
    def __init__(self, one: _Optional[int] = ..., other: _Optional[int] = ..., round_trip: _Optional[float] = ..., bytes_per_second: _Optional[float] = ..., bytes_per_second_back: _Optional[float] = ...) -> None: ...

class LeftOutAgent(_message.Message):
    __slots__ = ("name", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    reason: str
    def __init__(self, name: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ListSwitchesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSwitchesResponse(_message.Message):
    __slots__ = ("switches",)
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    switches: _containers.RepeatedCompositeFieldContainer[Switch]
    def __init__(self, switches: _Optional[_Iterable[_Union[Switch, _Mapping]]] = ...) -> None: ...

class Switch(_message.Message):
    __slots__ = ("name", "target", "control_address", "connected", "primary", "data_address", "data_udp_port", "values_per_packet", "slots", "slots_free", "largest_free_range", "failure", "control_version", "drained", "jobs", "parent")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CONTROL_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_FIELD_NUMBER: _ClassVar[int]
    DATA_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DATA_UDP_PORT_FIELD_NUMBER: _ClassVar[int]
    VALUES_PER_PACKET_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FREE_FIELD_NUMBER: _ClassVar[int]
    LARGEST_FREE_RANGE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    CONTROL_VERSION_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    target: str
    control_address: str
    connected: bool
    primary: bool
    data_address: str
    data_udp_port: int
    values_per_packet: int
    slots: int
    slots_free: int
    largest_free_range: int
    failure: str
    control_version: str
    drained: bool
    jobs: int
    parent: str
    def __init__(self, name: _Optional[str] = ..., target: _Optional[str] = ..., control_address: _Optional[str] = ..., connected: bool = ..., primary: bool = ..., data_address: _Optional[str] = ..., data_udp_port: _Optional[int] = ..., values_per_packet: _Optional[int] = ..., slots: _Optional[int] = ..., slots_free: _Optional[int] = ..., largest_free_range: _Optional[int] = ..., failure: _Optional[str] = ..., control_version: _Optional[str] = ..., drained: bool = ..., jobs: _Optional[int] = ..., parent: _Optional[str] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("name", "drained")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    name: str
    drained: bool
    def __init__(self, name: _Optional[str] = ..., drained: bool = ...) -> None: ...

class ShowSwitchRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class SwitchDetail(_message.Message):
    __slots__ = ("switch", "entries", "groups", "verdicts", "drop_reasons", "losses")
    class VerdictsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class DropReasonsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    DROP_REASONS_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    switch: Switch
    entries: _containers.RepeatedCompositeFieldContainer[TableEntry]
    groups: _containers.RepeatedCompositeFieldContainer[MulticastGroup]
    verdicts: _containers.ScalarMap[str, int]
    drop_reasons: _containers.ScalarMap[str, int]
    losses: _containers.RepeatedCompositeFieldContainer[PortLoss]
    def __init__(self, switch: _Optional[_Union[Switch, _Mapping]] = ..., entries: _Optional[_Iterable[_Union[TableEntry, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[MulticastGroup, _Mapping]]] = ..., verdicts: _Optional[_Mapping[str, int]] = ..., drop_reasons: _Optional[_Mapping[str, int]] = ..., losses: _Optional[_Iterable[_Union[PortLoss, _Mapping]]] = ...) -> None: ...

class SetLossRequest(_message.Message):
    __slots__ = ("name", "ports", "ingress", "egress")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    INGRESS_FIELD_NUMBER: _ClassVar[int]
    EGRESS_FIELD_NUMBER: _ClassVar[int]
    name: str
    ports: _containers.RepeatedScalarFieldContainer[int]
    ingress: float
    egress: float
    def __init__(self, name: _Optional[str] = ..., ports: _Optional[_Iterable[int]] = ..., ingress: _Optional[float] = ..., egress: _Optional[float] = ...) -> None: ...

class SetLossResponse(_message.Message):
    __slots__ = ("ports",)
    PORTS_FIELD_NUMBER: _ClassVar[int]
    ports: _containers.RepeatedCompositeFieldContainer[PortLoss]
    def __init__(self, ports: _Optional[_Iterable[_Union[PortLoss, _Mapping]]] = ...) -> None: ...

class PortLoss(_message.Message):
    __slots__ = ("port", "ingress", "egress")
    PORT_FIELD_NUMBER: _ClassVar[int]
    INGRESS_FIELD_NUMBER: _ClassVar[int]
    EGRESS_FIELD_NUMBER: _ClassVar[int]
    port: int
    ingress: float
    egress: float
    def __init__(self, port: _Optional[int] = ..., ingress: _Optional[float] = ..., egress: _Optional[float] = ...) -> None: ...

class TableEntry(_message.Message):
    __slots__ = ("table", "match", "action", "parameters", "packets")
    class MatchEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TABLE_FIELD_NUMBER: _ClassVar[int]
    MATCH_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    table: str
    match: _containers.ScalarMap[str, str]
    action: str
    parameters: _containers.ScalarMap[str, str]
    packets: int
    def __init__(self, table: _Optional[str] = ..., match: _Optional[_Mapping[str, str]] = ..., action: _Optional[str] = ..., parameters: _Optional[_Mapping[str, str]] = ..., packets: _Optional[int] = ...) -> None: ...

class MulticastGroup(_message.Message):
    __slots__ = ("id", "replicas")
    class Replica(_message.Message):
        __slots__ = ("port", "instance")
        PORT_FIELD_NUMBER: _ClassVar[int]
        INSTANCE_FIELD_NUMBER: _ClassVar[int]
        port: int
        instance: int
        def __init__(self, port: _Optional[int] = ..., instance: _Optional[int] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    id: int
    replicas: _containers.RepeatedCompositeFieldContainer[MulticastGroup.Replica]
    def __init__(self, id: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[MulticastGroup.Replica, _Mapping]]] = ...) -> None: ...

class InfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InfoResponse(_message.Message):
    __slots__ = ("version", "protocol_version", "started", "store_path", "term")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    STORE_PATH_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    version: str
    protocol_version: int
    started: float
    store_path: str
    term: int
    def __init__(self, version: _Optional[str] = ..., protocol_version: _Optional[int] = ..., started: _Optional[float] = ..., store_path: _Optional[str] = ..., term: _Optional[int] = ...) -> None: ...

class ErrorDetail(_message.Message):
    __slots__ = ("error", "message", "figures")
    class FiguresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    error: str
    message: str
    figures: _containers.ScalarMap[str, str]
    def __init__(self, error: _Optional[str] = ..., message: _Optional[str] = ..., figures: _Optional[_Mapping[str, str]] = ...) -> None: ...
