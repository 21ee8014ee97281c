"""The packet side: every rank's window, retransmission and transport, on one data thread."""

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

class Engine:
    """All ranks of one agent. Its methods do not wait for the network."""

    def __init__(self) -> None: ...
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
    ) -> int: ...
    def udp_port(self, handle: int) -> int: ...
    def open_channel(self, handle: int) -> tuple[int, int]: ...
    def close_rank(self, handle: int) -> None: ...
    def status(self, handle: int) -> RankStatus: ...
