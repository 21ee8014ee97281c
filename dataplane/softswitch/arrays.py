"""Indexed objects of the data plane: indirect counters and registers.

P4Runtime specification, "CounterEntry" and "RegisterEntry". Their values exist only in the native switch.
"""

from __future__ import annotations

from collections.abc import Iterator

import grpc
from finsy.proto import p4d, p4r

from switchml.dataplane.softswitch import bytestring
from switchml.dataplane.softswitch._native import Switch
from switchml.dataplane.softswitch.errors import P4RuntimeError
from switchml.dataplane.softswitch.native_tables import native_errors
from switchml.dataplane.softswitch.pipeline_config import Dimensions
from switchml.dataplane.softswitch.schema import LANE_NAME, CounterArray, Register, Schema
from switchml.dataplane.softswitch.table_entry import invalid, read_counter_data

__all__ = ["Counters", "Registers"]


class Counters:
    """The indirect counters of the pipeline, by id."""

    def __init__(self, schema: Schema, switch: Switch) -> None:
        self._counters = schema.counters
        self._access = {
            "drop_counter": (switch.read_drop_counter, switch.write_drop_counter),
            "job_counter": (switch.read_job_counter, switch.write_job_counter),
        }

    def modify(self, entry: p4r.CounterEntry) -> None:
        """Set one cell, or all of them if the index is absent; raises P4RuntimeError."""
        counter = self._counter(entry.counter_id)
        indexes = _indexes(counter.name, entry, counter.size)
        if not entry.HasField("data"):
            return
        packets, byte_count = read_counter_data(counter.name, entry.data)
        _, write = self._access[counter.name]
        with native_errors(counter.name):
            for index in indexes:
                write(index, packets, byte_count)

    def select(self, request: p4r.CounterEntry) -> Iterator[p4r.CounterEntry]:
        """Yield the cells that a read request selects: counter id 0 means every counter."""
        if not request.counter_id:
            if request.HasField("index"):
                raise invalid("a read of all counters (counter_id 0) cannot have an index")
            for counter in self._counters.values():
                yield from self._read(counter, range(counter.size))
            return
        counter = self._counter(request.counter_id)
        yield from self._read(counter, _indexes(counter.name, request, counter.size))

    def _read(self, counter: CounterArray, indexes: range) -> Iterator[p4r.CounterEntry]:
        read, _ = self._access[counter.name]
        for index in indexes:
            with native_errors(counter.name):
                packets, byte_count = read(index)
            data = p4r.CounterData(packet_count=packets, byte_count=byte_count)
            yield p4r.CounterEntry(counter_id=counter.id, index=p4r.Index(index=index), data=data)

    def _counter(self, counter_id: int) -> CounterArray:
        if not counter_id:
            raise invalid("counter_id is 0, which is not a valid id")
        counter = self._counters.get(counter_id)
        if counter is None:
            raise invalid(f"the pipeline has no indirect counter with id {counter_id:#x}")
        return counter


class Registers:
    """The registers of the pipeline, by id. Each has two entries for every slot."""

    def __init__(self, schema: Schema, switch: Switch, dimensions: Dimensions) -> None:
        self._registers = schema.registers
        self._switch = switch
        self._dimensions = dimensions
        self._size = 2 * dimensions.slots
        self._generation = 0

    def invalidate(self) -> None:
        """Make reads in progress fail, because the state that they have returned is no longer current."""
        self._generation += 1

    def modify(self, entry: p4r.RegisterEntry) -> None:
        """Set one entry, or all of them if the index is absent; raises P4RuntimeError."""
        register = self._register(entry.register_id)
        indexes = _indexes(register.name, entry, self._size)
        kind = entry.data.WhichOneof("data")
        if kind != "bitstring":
            raise invalid(f"{register.name}: the data must be a bitstring, not {kind or 'unset'}")
        value = bytestring.decode(entry.data.bitstring, register.bits, register.name)
        self.invalidate()
        with native_errors(register.name):
            for index in indexes:
                self._switch.write_register(register.name, index, value)

    def select(self, request: p4r.RegisterEntry) -> Iterator[p4r.RegisterEntry]:
        """Yield the entries that a read request selects: register id 0 means every register."""
        if not request.register_id:
            if request.HasField("index"):
                raise invalid("a read of all registers (register_id 0) cannot have an index")
            for register in self._registers.values():
                if self._exists(register):
                    yield from self._read(register, range(self._size))
            return
        register = self._register(request.register_id)
        yield from self._read(register, _indexes(register.name, request, self._size))

    def _read(self, register: Register, indexes: range) -> Iterator[p4r.RegisterEntry]:
        generation = self._generation
        for index in indexes:
            if generation != self._generation:
                raise P4RuntimeError(
                    grpc.StatusCode.ABORTED, f"{register.name} was written while it was being read: read it again"
                )
            with native_errors(register.name):
                value = self._switch.read_register(register.name, index)
            data = p4d.P4Data(bitstring=bytestring.encode(value))
            yield p4r.RegisterEntry(register_id=register.id, index=p4r.Index(index=index), data=data)

    def _register(self, register_id: int) -> Register:
        if not register_id:
            raise invalid("register_id is 0, which is not a valid id")
        register = self._registers.get(register_id)
        if register is None:
            raise invalid(f"the pipeline has no register with id {register_id:#x}")
        if not self._exists(register):
            raise P4RuntimeError(
                grpc.StatusCode.OUT_OF_RANGE,
                f"{register.name} is not in this pipeline: values_per_packet is {self._dimensions.values_per_packet}",
            )
        return register

    def _exists(self, register: Register) -> bool:
        """Return whether the device configuration's values per packet include the lane that the P4Info names."""
        lane = LANE_NAME.fullmatch(register.name)
        return lane is None or int(lane[1]) < self._dimensions.values_per_packet


def _indexes(name: str, entry: p4r.CounterEntry | p4r.RegisterEntry, size: int) -> range:
    if not entry.HasField("index"):
        return range(size)
    index = entry.index.index
    if index < 0:
        raise invalid(f"{name}: index {index} is negative")
    if index >= size:
        raise P4RuntimeError(grpc.StatusCode.OUT_OF_RANGE, f"{name} has {size} entries; there is no index {index}")
    return range(index, index + 1)
