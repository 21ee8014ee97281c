from collections.abc import Sequence
from typing import Literal, TypeAlias, TypedDict, type_check_only

import numpy as np
import numpy.typing as npt

_Words: TypeAlias = npt.NDArray[np.uint8]  # big-endian, starting at a multiple of 64 bytes
UDP_PORT_BUFFER_BYTES: int  # what each socket of a UDP port is to be given in each direction

@type_check_only
class PortCounters(TypedDict):
    received: int  # datagrams or frames, before injected faults
    receive_overflow: int  # dropped by the kernel because the port's receive buffer was full
    receive_errors: int  # frames that a device dropped because of a wrong checksum or length
    handed_over: int  # frames received by another shard than their slot's, which was given them
    sent: int  # datagrams or frames
    send_errors: int  # those that the kernel refused: lost
    last_send_errno: int  # of the last refusal; 0 when there was none
    injected_drop: int
    injected_duplicate: int
    injected_delay: int
    injected_flip: int
    receive_buffer: int  # bytes
    send_buffer: int  # bytes
    udp_port: int  # 0 where there is none
    gso: bool
    gro: bool

_L2Action: TypeAlias = (
    tuple[Literal["forward"], int]  # to this port
    | tuple[Literal["flood"], int]  # to this multicast group
    | tuple[Literal["drop_no_route"]]
)
_Direction: TypeAlias = Literal["ingress", "egress"]

# Addresses are integers in host byte order. A key that is not there raises KeyError, a number that does not fit
# ValueError, what the system refuses OSError. All may be called from any thread; each takes effect between two bursts
# of packets.
class Switch:
    def __init__(self, slots: int, values: int, shards: int = 1) -> None: ...
    def reset(self, slots: int, values: int) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def add_udp_port(self, port: int, address: str, udp_port: int) -> int: ...
    # One Ethernet frame in each Unix datagram. Binds `path` and sends to whatever is bound to `peer` at the moment; a
    # frame for which nobody is there, or whose reader has net.unix.max_dgram_qlen frames waiting, is lost.
    def add_frame_port(self, port: int, path: str, peer: str) -> None: ...
    # An Ethernet interface, which becomes promiscuous; takes CAP_NET_RAW. Checksum offload may be on, segmentation
    # offload (TSO, GSO, GRO) must be off there, and at the other end of a veth.
    def add_packet_port(self, port: int, interface: str) -> None: ...
    # What switchml.dataplane.devices has opened, with a queue for each shard, which is the switch's from then on; a
    # busy port never sleeps.
    def add_device_port(self, port: int, queues: Sequence[object], busy: bool) -> None: ...
    # Agents on this machine bind ranks at the Unix socket `path`; the ranks share memory with the switch.
    def add_shm_port(self, port: int, path: str, shards: int = 1) -> None: ...
    def set_faults(
        self, port: int, drop: float, duplicate: float, delay: float, seed: int, flip: float = 0.0
    ) -> None: ...
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
        secret: int = 0,
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
        secret: int = 0,
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
        secret: int = 0,
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
        secret: int = 0,
    ) -> None: ...
    def set_job(self, job: int, slot_value: int, slot_mask: int) -> None: ...
    def delete_job(self, job: int) -> None: ...
    def set_rank(self, job: int, rank: int, eth_dst: int, ipv4_dst: int, udp_dst: int) -> None: ...
    def delete_rank(self, job: int, rank: int) -> None: ...
    def set_group(self, group: int, replicas: Sequence[tuple[int, int]]) -> None: ...
    def delete_group(self, group: int) -> None: ...
    def set_switch_address(self, mac: int, ip: int) -> None: ...
    def set_l2(self, eth_dst: int, action: _L2Action) -> None: ...
    def delete_l2(self, eth_dst: int) -> None: ...
    def set_l2_default(self, action: _L2Action) -> None: ...
    # A packet is lost when a random 32-bit number is below `threshold`, and always at 0xFFFFFFFF.
    def set_loss(self, port: int, direction: _Direction, threshold: int) -> None: ...
    def delete_loss(self, port: int, direction: _Direction) -> None: ...
    def read_drop_counter(self, index: int) -> tuple[int, int]: ...
    def write_drop_counter(self, index: int, packets: int, byte_count: int) -> None: ...
    def read_job_counter(self, index: int) -> tuple[int, int]: ...
    def write_job_counter(self, index: int, packets: int, byte_count: int) -> None: ...
    def read_register(self, name: str, index: int) -> int: ...
    def write_register(self, name: str, index: int, value: int) -> None: ...

class kernels:  # noqa: N801 - a submodule
    """Additions modulo 2^32, for tests and benchmarks; nothing else may be running in this process."""

    # Names of those that this processor has, from the least to the best.
    @staticmethod
    def instructions() -> list[str]: ...
    # sums += values, in blocks of so many words.
    @staticmethod
    def add(instructions: str, sums: _Words, values: _Words, block: int) -> None: ...
    # Each of the buffers becomes their sum.
    @staticmethod
    def sum_in_place(instructions: str, buffers: Sequence[_Words], block: int, streaming: bool = False) -> None: ...
