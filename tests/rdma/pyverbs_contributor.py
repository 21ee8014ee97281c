"""The ranks of a job as in contributor.cc, on rdma-core's binding for Python. It imports nothing of this project.

Its arguments and its lines of JSON are those of contributor.cc.
"""

from __future__ import annotations

import ipaddress
import json
import struct
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from pyverbs import enums
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

_HEADER = struct.Struct("!BBHBBHHHHBBIIII")
_SWITCH_QUEUE_PAIR = 0x80BEE0
_GRH_BYTES = 40
_GIDS = 256
_BUFFERS = 64
_TIMEOUT = 0.5
_DEADLINE = 100.0


def mapped(address: str) -> str:
    return ipaddress.IPv6Address(f"::ffff:{address}").exploded


@dataclass
class Counts:
    results: int = 0
    wrong: int = 0
    repeated: int = 0
    retransmissions: int = 0
    foreign: int = 0


@dataclass(frozen=True)
class Job:
    address: str
    switch: str
    first: int
    ranks: int
    world: int
    values: int
    slots: int
    phases: int
    id: int
    epoch: int
    secret: int

    @property
    def queue_key(self) -> int:
        return self.secret & 0x7FFFFFFF

    def contribution(self, rank: int, slot: int, phase: int) -> bytes:
        values = [
            ((rank + 1) * 1_000_003 * (lane + 1) - 7 * (phase + slot)) & 0xFFFFFFFF for lane in range(self.values)
        ]
        header = _HEADER.pack(
            *(1, 1, self.id, rank, 1, 100 + rank, slot << 1 | phase & 1, self.values, self.epoch, 0, 0),
            *(phase, phase * self.slots + slot, rank + 1, self.secret),
        )
        return header + struct.pack(f"!{self.values}I", *values)

    def sums(self, slot: int, phase: int) -> bytes:
        factor = 1_000_003 * (self.world * (self.world + 1) // 2)
        values = [(factor * (lane + 1) - 7 * self.world * (phase + slot)) & 0xFFFFFFFF for lane in range(self.values)]
        return struct.pack(f"!{self.values}I", *values)


@dataclass
class Slot:
    phase: int = 0
    sent: float = 0.0


class Card:
    """The device, with address handles of the switch and of the device itself."""

    def __init__(self, job: Job) -> None:
        self.context = Context(name=get_device_list()[0].name.decode())
        self.domain = PD(self.context)
        (index,) = (
            entry.gid_index
            for entry in self.context.query_gid_table(_GIDS)
            if entry.gid_type == enums.IBV_GID_TYPE_ROCE_V2 and entry.gid_str() == mapped(job.address)
        )
        self.to_switch, self.to_itself = (
            AH(
                self.domain,
                attr=AHAttr(
                    gr=GlobalRoute(dgid=GID(mapped(address)), sgid_index=index, hop_limit=64), is_global=1, port_num=1
                ),
            )
            for address in (job.switch, job.address)
        )
        self.mtu = 128 << self.context.query_port(1).active_mtu


@dataclass
class Rank:
    job: Job
    card: Card
    number: int
    slots: list[Slot] = field(init=False)

    def __post_init__(self) -> None:
        self.slots = [Slot() for _ in range(self.job.slots)]
        self.sent, self.received = CQ(self.card.context, 1), CQ(self.card.context, _BUFFERS)
        self.bytes = _GRH_BYTES + self.card.mtu
        self.outgoing = MR(self.card.domain, self.card.mtu, enums.IBV_ACCESS_LOCAL_WRITE)
        self.incoming = MR(self.card.domain, _BUFFERS * self.bytes, enums.IBV_ACCESS_LOCAL_WRITE)
        capacity = QPCap(max_send_wr=1, max_recv_wr=_BUFFERS)
        properties = QPInitAttr(enums.IBV_QPT_UD, scq=self.sent, rcq=self.received, cap=capacity, sq_sig_all=1)
        attributes = QPAttr(port_num=1)
        attributes.qkey = self.job.queue_key
        self.pair = QP(self.card.domain, properties, attributes)
        for buffer in range(_BUFFERS):
            self.post(buffer)

    def post(self, buffer: int) -> None:
        piece = SGE(self.incoming.buf + buffer * self.bytes, self.bytes, self.incoming.lkey)
        self.pair.post_recv(RecvWR(wr_id=buffer, num_sge=1, sg=[piece]))

    def contribute(self, slot: int) -> None:
        message = self.job.contribution(self.number, slot, self.slots[slot].phase)
        self.send(message, self.card.to_switch, _SWITCH_QUEUE_PAIR, self.job.queue_key)
        self.slots[slot].sent = time.monotonic()

    def send(self, message: bytes, to: AH, pair: int, queue_key: int) -> None:
        self.outgoing.write(message, len(message))
        piece = SGE(self.outgoing.buf, len(message), self.outgoing.lkey)
        request = SendWR(opcode=enums.IBV_WR_SEND, num_sge=1, sg=[piece])
        request.set_wr_ud(to, pair, queue_key)
        self.pair.post_send(request)
        end = time.monotonic() + _DEADLINE
        while not (done := self.sent.poll(1)[1]):
            if time.monotonic() > end:
                raise TimeoutError("a message was not sent")
            time.sleep(0)
        if done[0].status != enums.IBV_WC_SUCCESS:
            raise OSError(f"a message was not sent: status {done[0].status}")

    def resend_overdue(self, counts: Counts) -> None:
        for number, slot in enumerate(self.slots):
            if slot.phase < self.job.phases and time.monotonic() > slot.sent + _TIMEOUT:
                self.contribute(number)
                counts.retransmissions += 1

    def take(self, counts: Counts) -> None:
        for done in self.received.poll(_BUFFERS)[1]:
            if done.status != enums.IBV_WC_SUCCESS:
                raise OSError(f"a message was not received: status {done.status}")
            message = self.incoming.read(done.byte_len, done.wr_id * self.bytes)
            addresses = [str(ipaddress.IPv4Address(message[place : place + 4])) for place in (32, 36)]
            self.post(done.wr_id)
            if done.src_qp != _SWITCH_QUEUE_PAIR or addresses != [self.job.switch, self.job.address]:
                counts.foreign += 1
            else:
                self.take_result(message[_GRH_BYTES:], counts)

    def take_result(self, message: bytes, counts: Counts) -> None:
        header = _HEADER.unpack_from(message)
        number, phase = header[6] >> 1, header[11]
        slot = self.slots[number]
        if phase < slot.phase:
            counts.repeated += 1
        elif (header[1], phase) != (2, slot.phase) or message[_HEADER.size :] != self.job.sums(number, phase):
            counts.wrong += 1
        else:
            counts.results += 1
            slot.phase += 1
            if slot.phase < self.job.phases:
                self.contribute(number)

    @property
    def is_done(self) -> bool:
        return all(slot.phase == self.job.phases for slot in self.slots)


def require_key(sender: Rank, receiver: Rank) -> None:
    """Check that a card drops what has the last epoch's Q_Key, and not what comes after it."""
    job = sender.job
    for key, text in ((job.queue_key - 1, b"last epoch"), (job.queue_key, b"this epoch")):
        sender.send(text, sender.card.to_itself, receiver.pair.qp_num, key)
    end = time.monotonic() + _DEADLINE
    while not (heard := receiver.received.poll(_BUFFERS)[1]):
        if time.monotonic() > end:
            raise TimeoutError("the message with the right Q_Key did not arrive")
        time.sleep(0)
    for done in heard:
        message = receiver.incoming.read(done.byte_len, done.wr_id * receiver.bytes)[_GRH_BYTES:]
        if message != b"this epoch":
            raise OSError(f"a message with a wrong Q_Key was received: {message!r}")
        receiver.post(done.wr_id)


def say(**report: Any) -> None:
    print(json.dumps(report), flush=True)  # noqa: T201 (the guest's console)


def main(address: str, switch: str, *numbers: str) -> None:
    job = Job(address, switch, *map(int, numbers))
    card = Card(job)
    ranks = [Rank(job, card, job.first + number) for number in range(job.ranks)]
    require_key(*ranks[:2])
    say(queue_pairs=[rank.pair.qp_num for rank in ranks], mtu=card.mtu)
    while sys.stdin.readline().strip() != "go":
        pass
    counts = Counts()
    end = time.monotonic() + _DEADLINE
    for rank in ranks:
        for slot in range(job.slots):
            rank.contribute(slot)
    while not all(rank.is_done for rank in ranks):
        if time.monotonic() > end:
            raise TimeoutError("results are missing")
        for rank in ranks:
            rank.take(counts)
            rank.resend_overdue(counts)
        time.sleep(0)
    say(**vars(counts))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:
        say(error=repr(error))
        raise
