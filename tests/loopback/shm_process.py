"""A training process's access, byte by byte, to the memory that a rank shares with the agent or a switch."""

from __future__ import annotations

import mmap
import os
import struct
from types import TracebackType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from switchml.dataplane.constants import OWNER_EVERYONE, Flag, Format
from switchml.host_agent._engine import Engine
from tests.loopback.rank_assignments import rank_assignment
from tests.support.soft_switch import wait_until

# native/channel/channel.h
SUBMITTED = 128
COMPLETED = 256
SERVER_SLEEPS = 384
RINGS = 6400  # after ChannelControl
Process = TypeVar("Process", bound="RankProcess")
_TICKET = struct.Struct("<IIIHHHBB")  # position, chunk, check, exponent, count, format, owner, flags


def _round_up(number: int, to: int) -> int:
    return -(-number // to) * to


class RankProcess:
    """The process of the open rank `handle`, whose job has pools of `slots` slots of `values` values."""

    def __init__(self, engine: Engine, handle: int, slots: int, values: int) -> None:
        self._engine = engine
        self.handle = handle
        self.slots, self.values = slots, values
        self.memory_fd, self.doorbell_fd, *others = engine.open_channel(handle)
        for descriptor in others:  # the results that an agent writes, which are not read here
            os.close(descriptor)
        self.memory = mmap.mmap(self.memory_fd, 0)
        self._tickets = _round_up(RINGS + 4 * slots, 128)
        self._payload = _round_up(self._tickets + 2 * slots * _TICKET.size, 4096)
        self._stride = _round_up(4 * values, 64)
        self._submitted = 0

    def __enter__(self: Process) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.memory.close()
        for descriptor in (self.memory_fd, self.doorbell_fd):
            os.close(descriptor)
        if self.handle:
            self.unbind()

    def unbind(self) -> None:
        """Let the agent close the rank, as if its process had died."""
        self._engine.close_rank(self.handle)
        self.handle = 0

    def write_ticket(
        self,
        slot: int,
        chunk: int,
        exponent: int = 0,
        count: int | None = None,
        flags: int = 0,
        format_: int = 1,
        owner: int = OWNER_EVERYONE,
    ) -> None:
        """Write the ticket of the chunk at this stream position."""
        fields = (chunk, chunk, 0, exponent, self.values if count is None else count, format_, owner, flags)
        _TICKET.pack_into(self.memory, self._tickets + slot * _TICKET.size, *fields)

    def submit_index(self, index: int) -> None:
        """Write an arbitrary entry into the submission ring."""
        struct.pack_into("<H", self.memory, RINGS + 2 * (self._submitted % self.slots), index)
        self._submitted += 1
        self.publish(self._submitted)

    def publish(self, submitted: int) -> None:
        struct.pack_into("<I", self.memory, SUBMITTED, submitted & 0xFFFFFFFF)
        os.eventfd_write(self.doorbell_fd, 1)

    def write(self, slot: int, values: npt.NDArray[np.int32]) -> None:
        """Write values into a slot's contribution buffer."""
        at = self._payload + slot * self._stride
        self.memory[at : at + 4 * self.values] = values.astype(">i4").tobytes()

    def contribute(self, slot: int, chunk: int, values: npt.NDArray[np.int32]) -> None:
        self.write(slot, values)
        self.write_ticket(slot, chunk, format_=Format.INT32)
        self.submit_index(slot)

    def contribute_nothing(self, slot: int, chunk: int) -> None:
        self.write_ticket(slot, chunk, count=0, flags=Flag.WITHOUT_VALUES)
        self.submit_index(slot)

    @property
    def completed(self) -> int:
        (count,) = struct.unpack_from("<I", self.memory, COMPLETED)
        return int(count)

    @property
    def asked_to_ring(self) -> bool:
        """Return whether the switch sleeps until this rank rings the doorbell."""
        return bool(self.memory[SERVER_SLEEPS])

    def wait_completed(self, count: int) -> None:
        wait_until(lambda: self.completed == count, f"{count} results have come")

    def result_header(self, slot: int) -> tuple[int, int, int]:
        """Return exponent, count and flags of the last result of a slot."""
        ticket = _TICKET.unpack_from(self.memory, self._tickets + (self.slots + slot) * _TICKET.size)
        *_, exponent, count, _, _, flags = ticket
        return exponent, count, flags

    def result(self, slot: int) -> npt.NDArray[np.int32]:
        at = self._payload + slot * self._stride
        return np.frombuffer(self.memory[at : at + 4 * self.values], ">i4").astype(np.int32)


class ShmProcess(RankProcess):
    """One rank of a job, bound to the switch at `path`; job, epoch and slots are as in worker_table."""

    def __init__(
        self,
        engine: Engine,
        path: str,
        job: int,
        rank: int,
        world_size: int,
        slot_base: int,
        slots: int,
        values: int,
        address: str = "127.0.0.1",
    ) -> None:
        assignment = rank_assignment(
            job, rank, world_size, slot_base=slot_base, slots=slots, values=values, address=address
        )
        handle = engine.open_shm_rank(path, assignment)
        super().__init__(engine, handle, slots, values)
        self.connection = engine.sender(handle)
