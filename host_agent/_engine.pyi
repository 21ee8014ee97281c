"""The packet side: every rank's window, retransmission and transport, and the threads that run it."""

from typing import TypedDict

class RankStatus(TypedDict):
    """What the engine knows of one rank; counters are of this epoch."""

    position: int
    sent: int
    received: int
    retransmissions: int
    early_retransmissions: int
    ignored: int
    round_trip_seconds: float

SOCKET_BUFFER_BYTES: int  # what a job's socket is to be given in each direction

# What it is given here, receiving and sending, in bytes. Raises OSError when there is no socket to be had.
def granted_socket_buffers() -> tuple[int, int]: ...

# The number of the shm port whose switch listens at `path`. Raises as Engine.open_shm_rank.
def shm_port_at(path: str) -> int: ...

class Engine:
    """All ranks of one agent, their slots divided among `threads`. Its methods do not wait for the network."""

    # Raises ValueError for threads outside 1..64, and OSError.
    def __init__(self, threads: int = 1) -> None: ...
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
    ) -> int: ...
    # What a packet of the rank has as its UDP source port, the same for all ranks of a job here: of a rank that shares
    # memory, its connection.
    def udp_port(self, handle: int) -> int: ...
    # Memory, doorbell, and the memory of the job's results.
    def open_channel(self, handle: int) -> tuple[int, ...]: ...
    def close_rank(self, handle: int) -> None: ...
    def status(self, handle: int) -> RankStatus: ...
