"""The P4 tables in the native switch: one class for each table, one typed native call for each entry."""

# ruff: noqa: ARG002 - one interface, of which each table uses what it needs
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

import grpc

from switchml.dataplane.softswitch._native import Switch, WorkerMatch
from switchml.dataplane.softswitch.errors import P4RuntimeError

__all__ = ["NativeTable", "native_errors", "native_table"]

Key = Mapping[str, tuple[int, int]]


@contextmanager
def native_errors(what: str) -> Iterator[None]:
    """Translate exceptions of a native call to P4Runtime errors that a client can act on."""
    try:
        yield
    except MemoryError:
        raise P4RuntimeError(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{what}: out of memory") from None
    except IndexError as error:
        raise P4RuntimeError(grpc.StatusCode.OUT_OF_RANGE, f"{what}: {error}") from None
    except (ValueError, OverflowError) as error:
        raise P4RuntimeError(grpc.StatusCode.INVALID_ARGUMENT, f"{what}: {error}") from None
    except LookupError as error:
        raise P4RuntimeError(
            grpc.StatusCode.INTERNAL, f"{what}: the tables and the native switch disagree: {error}"
        ) from error


class NativeTable:
    """The native side of a table; each class implements the operations that its table supports.

    ``action`` is an action's name, ``arguments`` are in the order of its parameter ids.
    """

    def __init__(self, switch: Switch) -> None:
        self._switch = switch

    def put(self, key: Key, priority: int, action: str, arguments: Sequence[int]) -> None:
        """Insert an entry, or replace the action of one."""
        raise self._refusal("entries")

    def remove(self, key: Key, priority: int) -> None:
        """Delete an entry."""
        raise self._refusal("entries")

    def set_default(self, action: str, arguments: Sequence[int]) -> None:
        """Set the action of the default entry."""
        raise self._refusal("another default action")

    def read_counter(self, key: Key, priority: int) -> tuple[int, int]:
        """Return (packets, bytes) of an entry's direct counter."""
        raise self._refusal("a direct counter")

    def write_counter(self, key: Key, priority: int, packets: int, byte_count: int) -> None:
        """Set an entry's direct counter."""
        raise self._refusal("a direct counter")

    def _refusal(self, what: str) -> P4RuntimeError:
        table = type(self).__name__.lstrip("_")
        return P4RuntimeError(grpc.StatusCode.UNIMPLEMENTED, f"the soft switch's {table} has no {what}")


class _WorkerTable(NativeTable):
    @staticmethod
    def _match(key: Key, priority: int) -> WorkerMatch:
        slot_value, slot_mask = key["slot"]
        return WorkerMatch(
            port=key["ingress_port"][0],
            eth_src=key["eth_src"][0],
            ipv4_src=key["ipv4_src"][0],
            sender=key["udp_src"][0],
            job=key["job"][0],
            worker=key["worker"][0],
            slot_value=slot_value,
            slot_mask=slot_mask,
            priority=priority,
            kind=key["kind"][0],
            secret=key["secret"][0],
        )

    def put(self, key: Key, priority: int, action: str, arguments: Sequence[int]) -> None:
        match = self._match(key, priority)
        if action == "admit_parent":
            mask, epoch, group, completed_here = arguments
            self._switch.set_parent(match, mask=mask, epoch=epoch, group=group, completed_here=bool(completed_here))
            return
        bit, mask, epoch, group = arguments
        has_parent = action == "admit_below"
        self._switch.set_worker(match, bit=bit, mask=mask, epoch=epoch, group=group, has_parent=has_parent)

    def remove(self, key: Key, priority: int) -> None:
        self._switch.delete_worker(self._match(key, priority))

    def read_counter(self, key: Key, priority: int) -> tuple[int, int]:
        return self._switch.worker_counter(self._match(key, priority))

    def write_counter(self, key: Key, priority: int, packets: int, byte_count: int) -> None:
        self._switch.write_worker_counter(self._match(key, priority), packets, byte_count)


class _JobTable(NativeTable):
    def put(self, key: Key, priority: int, action: str, arguments: Sequence[int]) -> None:
        slot_value, slot_mask = arguments
        self._switch.set_job(key["job"][0], slot_value, slot_mask)

    def remove(self, key: Key, priority: int) -> None:
        self._switch.delete_job(key["job"][0])


class _RankTable(NativeTable):
    def put(self, key: Key, priority: int, action: str, arguments: Sequence[int]) -> None:
        eth_dst, ipv4_dst, place, ranks = arguments
        put = self._switch.set_rank_queue_pair if action == "address_queue_pair" else self._switch.set_rank
        put(key["job"][0], key["rank"][0], eth_dst, ipv4_dst, place, ranks)

    def remove(self, key: Key, priority: int) -> None:
        self._switch.delete_rank(key["job"][0], key["rank"][0])


class _SwitchAddressTable(NativeTable):
    def set_default(self, action: str, arguments: Sequence[int]) -> None:
        mac, ip = arguments
        self._switch.set_switch_address(mac, ip)


class _L2Table(NativeTable):
    def put(self, key: Key, priority: int, action: str, arguments: Sequence[int]) -> None:
        self._switch.set_l2(key["eth_dst"][0], _l2_action(action, arguments))

    def remove(self, key: Key, priority: int) -> None:
        self._switch.delete_l2(key["eth_dst"][0])

    def set_default(self, action: str, arguments: Sequence[int]) -> None:
        self._switch.set_l2_default(_l2_action(action, arguments))


def _l2_action(
    action: str, arguments: Sequence[int]
) -> tuple[Literal["forward"], int] | tuple[Literal["flood"], int] | tuple[Literal["drop_no_route"]]:
    if action == "forward":
        return ("forward", arguments[0])
    if action == "flood":
        return ("flood", arguments[0])
    assert action == "drop_no_route", action
    return ("drop_no_route",)


class _LossTable(NativeTable):
    direction: Literal["ingress", "egress"]

    def put(self, key: Key, priority: int, action: str, arguments: Sequence[int]) -> None:
        (threshold,) = arguments
        self._switch.set_loss(key["port"][0], self.direction, threshold)

    def remove(self, key: Key, priority: int) -> None:
        self._switch.delete_loss(key["port"][0], self.direction)


class _IngressLossTable(_LossTable):
    direction = "ingress"


class _EgressLossTable(_LossTable):
    direction = "egress"


_TABLES: dict[str, type[NativeTable]] = {
    "worker_table": _WorkerTable,
    "job_table": _JobTable,
    "rank_table": _RankTable,
    "switch_address_table": _SwitchAddressTable,
    "l2_table": _L2Table,
    "loss_ingress_table": _IngressLossTable,
    "loss_egress_table": _EgressLossTable,
}


def native_table(name: str, switch: Switch) -> NativeTable:
    """Return the native side of the P4 table ``name``. Raises KeyError for a table that is not in the pipeline."""
    return _TABLES[name](switch)
