"""The packet side: every rank's window, retransmission and transport, and the threads that run it."""

from collections.abc import Sequence
from typing import TypedDict

class RankStatus(TypedDict):
    """What the engine knows of one rank; counters are of this epoch."""

    position: int
    sent: int
    received: int
    retransmissions: int
    early_retransmissions: int
    ignored: int
    packets_together: int  # that leave in one message at most, over udp; 0 before that was measured
    round_trip_seconds: float
    epoch_spent: bool  # a slot was used nearly as often as it may be in one epoch

class LinkCounters(TypedDict):
    """Frames of an engine's device, in this process."""

    received: int
    receive_overflow: int  # dropped by the device, because nobody took them in time
    receive_errors: int  # dropped because the device found a wrong checksum or length
    sent: int
    send_errors: int  # lost: the device had no room
    uncopied: int  # sent with a payload that the device read from the process's memory
    handed_over: int  # received by another data thread than the one that the slot belongs to, which was given them
    malformed: int  # shorter than their headers, or lengths that contradict each other
    bad_checksum: int  # of the IPv4 header
    not_for_us: int  # neither ARP nor UDP to our address
    unknown_port: int  # UDP, but to no job
    unresolved: int  # not sent, because nobody had answered for the switch's address yet

SLOT_USES: int  # of one slot, that an epoch allows
SOCKET_BUFFER_BYTES: int  # what a job's socket is to be given in each direction

# What it is given here, receiving and sending, in bytes. Raises OSError when there is no socket to be had.
def granted_socket_buffers() -> tuple[int, int]: ...

class CallTimes(TypedDict):
    """One call that has ended; times are nanoseconds of the machine's monotonic clock.

    The last three are what the rank's progress thread did between `begun` and `ended`.
    """

    sequence: int
    kind: int
    bytes: int
    submitted: int
    begun: int
    answered: int
    ended: int
    quantize: int
    waiting: int
    dequantize: int

class RankProfile(TypedDict):
    """Where one rank's time goes, in nanoseconds; what the process says of itself is not checked.

    Bucket i of a histogram counts durations below 1.024 us times 2^i, and its last one all others.
    """

    quantize: int
    waiting: int
    dequantize: int
    sleeps: int
    calls: int
    bytes: int
    call_time: int
    calls_took: list[int]
    sending: int
    receiving: int
    sent_bytes: int
    received_bytes: int
    round_trips: list[int]
    round_trip_time: int
    summing: int
    taken_at: int
    latest: list[CallTimes]

# The number of the shm port whose switch listens at `path`. Raises as Engine.open_shm_rank.
def shm_port_at(path: str) -> int: ...

class Engine:
    """All ranks of one agent, their slots divided among `threads`. Its methods do not wait for the network."""

    # With the queues of a device of switchml.dataplane.devices, one for each thread, packets travel over them as frames
    # from `address` instead of over the kernel's UDP. All go to the MAC address `next_hop`, or else to whom ARP finds.
    # Busy: never sleep. Raises ValueError, also for threads outside 1..64, and OSError.
    def __init__(
        self,
        threads: int = 1,
        queues: Sequence[object] = (),
        address: str = "",
        next_hop: int | None = None,
        busy: bool = False,
        slot_uses: int = ...,
    ) -> None: ...
    # Raises ValueError without a device.
    def link_counters(self) -> LinkCounters: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def open_rank(
        self,
        address: str,
        switch_address: str,
        switch_udp_port: int,
        job: int,
        rank: int,
        epoch: int,
        world_size: int,
        slot_base: int,
        slots: int,
        values: int,
        secret: int = 0,
        multicast_address: str = "",
    ) -> int: ...
    # A rank that shares memory with the switch that listens at `path`. Raises OSError when no switch answers there, and
    # ValueError when it refuses.
    def open_shm_rank(
        self,
        path: str,
        address: str,
        job: int,
        rank: int,
        epoch: int,
        world_size: int,
        slot_base: int,
        slots: int,
        values: int,
        secret: int = 0,
    ) -> int: ...
    # What a packet of the rank has as its UDP source port, the same for all ranks of a job here: of a rank that shares
    # memory, its connection.
    def udp_port(self, handle: int) -> int: ...
    # Of a rank that shares memory with the switch: a descriptor that becomes readable when the switch ends; else -1.
    def switch_socket(self, handle: int) -> int: ...
    # Whether the switch with which the rank shares memory has ended.
    def switch_ended(self, handle: int) -> bool: ...
    # Memory, doorbell, and the memory of the job's results.
    def open_channel(self, handle: int) -> tuple[int, ...]: ...
    def close_rank(self, handle: int) -> None: ...
    def status(self, handle: int) -> RankStatus: ...
    # A change of epoch: from `freeze` on the rank begins nothing and takes no result; `fetch` lets it take those of
    # each slot until it holds so many phases. Both return how many phases of each slot it holds.
    # Raise OSError and ValueError when the switch that a rank shares memory with does not answer, or refuses.
    def freeze(self, handle: int) -> list[int]: ...
    def fetch(self, handle: int, targets: list[int]) -> list[int]: ...
    # With up to `calls` of the rank's latest calls, oldest first.
    def profile(self, handle: int, calls: int) -> RankProfile: ...
