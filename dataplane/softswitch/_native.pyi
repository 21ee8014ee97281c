from collections.abc import Sequence
from typing import TypedDict, type_check_only

@type_check_only
class PortCounters(TypedDict):
    received: int  # datagrams, before injected faults
    receive_overflow: int  # datagrams that the kernel dropped because the port's receive buffer was full
    sent: int  # datagrams
    send_errors: int  # datagrams that the kernel refused: lost
    last_send_errno: int  # of the last refusal; 0 when there was none
    injected_drop: int
    injected_duplicate: int
    injected_delay: int
    receive_buffer: int  # bytes
    send_buffer: int  # bytes
    udp_port: int
    gso: bool
    gro: bool

# Addresses are integers in host byte order. A key that is not there raises KeyError, a number that does not fit
# ValueError, what the system refuses OSError. All may be called from any thread; each takes effect between two bursts
# of packets.
class Switch:
    def __init__(self, slots: int, values: int) -> None: ...
    def reset(self, slots: int, values: int) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def add_udp_port(self, port: int, address: str, udp_port: int) -> int: ...
    def set_faults(self, port: int, drop: float, duplicate: float, delay: float, seed: int) -> None: ...
    def port_counters(self, port: int) -> PortCounters: ...
    def set_worker(
        self,
        port: int,
        eth_src: int,
        ipv4_src: int,
        udp_src: int,
        job: int,
        worker: int,
        slot_value: int,
        slot_mask: int,
        priority: int,
        bit: int,
        mask: int,
        epoch: int,
        group: int,
    ) -> None: ...
    def delete_worker(
        self,
        port: int,
        eth_src: int,
        ipv4_src: int,
        udp_src: int,
        job: int,
        worker: int,
        slot_value: int,
        slot_mask: int,
        priority: int,
    ) -> None: ...
    def worker_counter(
        self,
        port: int,
        eth_src: int,
        ipv4_src: int,
        udp_src: int,
        job: int,
        worker: int,
        slot_value: int,
        slot_mask: int,
        priority: int,
    ) -> tuple[int, int]: ...
    def write_worker_counter(
        self,
        port: int,
        eth_src: int,
        ipv4_src: int,
        udp_src: int,
        job: int,
        worker: int,
        slot_value: int,
        slot_mask: int,
        priority: int,
        packets: int,
        byte_count: int,
    ) -> None: ...
    def set_job(self, job: int, slot_value: int, slot_mask: int) -> None: ...
    def delete_job(self, job: int) -> None: ...
    def set_rank(self, job: int, rank: int, eth_dst: int, ipv4_dst: int, udp_dst: int) -> None: ...
    def delete_rank(self, job: int, rank: int) -> None: ...
    def set_group(self, group: int, replicas: Sequence[tuple[int, int]]) -> None: ...
    def delete_group(self, group: int) -> None: ...
    def set_switch_address(self, mac: int, ip: int) -> None: ...
    def read_drop_counter(self, index: int) -> tuple[int, int]: ...
    def write_drop_counter(self, index: int, packets: int, byte_count: int) -> None: ...
    def read_job_counter(self, index: int) -> tuple[int, int]: ...
    def write_job_counter(self, index: int, packets: int, byte_count: int) -> None: ...
    def read_register(self, name: str, index: int) -> int: ...
    def write_register(self, name: str, index: int, value: int) -> None: ...
