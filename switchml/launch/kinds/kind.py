"""The interface of the kinds of fabrics, and what they share: the size of soft switches, and their faults."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from switchml.common.job_numbers import MINIMUM_SLOTS
from switchml.dataplane.targets import SOFT
from switchml.launch.layouts import Layout
from switchml.launch.settings import EMBEDDED_VALUES, FABRIC_OPTIONS

__all__ = ["NEEDS_BMV2", "THREADS_NEED_UDP", "FabricKind", "Faults", "shared_fields"]

NEEDS_BMV2: Final = "--program is the P4 program of a bmv2 switch; omit it, or give --switch bmv2"
THREADS_NEED_UDP: Final = "only an embedded fabric over UDP (--transport udp) can have several data threads"


@dataclasses.dataclass(frozen=True)
class Faults:
    """The fractions of packets in which a soft switch injects faults, and the seed that chooses the packets."""

    drop: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0
    flip: float = 0.0
    seed: int = 1

    def any(self) -> bool:
        """Return whether there are faults."""
        return bool(self.drop or self.duplicate or self.delay or self.flip)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FabricKind(abc.ABC):
    """One kind of fabric, with the options that this kind has; soft switches have `slots` of `values` each.

    The constructor raises ConfigurationError or TopologyFileError for options that contradict each other.
    """

    values: int = SOFT.default_values
    slots: int = SOFT.default_slots
    faults: Faults = Faults()

    @abc.abstractmethod
    def layout(self, run_directory: Path, socket_directory: Path) -> Layout:
        """Return where the processes run, with their control sockets in `socket_directory`."""

    def options(self) -> dict[str, Any]:
        """Return the options of all kinds, as fabric.json has them; those of other kinds have their defaults."""
        own = {**vars(self), **vars(self.faults)}
        return {name: own.get(name, default) for name, default in FABRIC_OPTIONS.items()}

    def soft_switch_arguments(self) -> list[str]:
        """Return the arguments of every soft switch."""
        arguments = ["--device-id", "1", "--values", str(self.values), "--slots", str(self.slots)]
        if self.faults.any():
            arguments += [part for name, value in vars(self.faults).items() for part in (f"--{name}", str(value))]
        return arguments

    def table_at_udp(self, ready: dict[str, Any]) -> dict[str, Any]:
        """Return what the controller's configuration says of any soft switch with a UDP port at number 1."""
        return {
            "target": SOFT.name,
            "p4runtime": ready["grpc"],
            "address": ready["ports"]["1"]["address"],
            "udp_port": ready["ports"]["1"]["udp_port"],
            "values_per_packet": self.values,
            "slots": self.slots,
        }

    def pool(self, slots: int) -> int:
        """Return the pool with as many bytes as `slots` of EMBEDDED_VALUES, at most a quarter of the switch."""
        most = max(MINIMUM_SLOTS, min(slots * EMBEDDED_VALUES // self.values, self.slots // 4))
        return int(1 << (most.bit_length() - 1))


def shared_fields(
    options: Mapping[str, Any], *, values: int = SOFT.default_values, slots: int = SOFT.default_slots
) -> dict[str, Any]:
    """Return the fields that every kind has, from options with the names of FABRIC_OPTIONS and these defaults."""
    return {
        "values": options["values"] or values,
        "slots": options["slots"] or slots,
        "faults": Faults(**{field.name: options[field.name] for field in dataclasses.fields(Faults)}),
    }
