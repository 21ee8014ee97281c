"""The targets: what switches of each kind can do, in one record.

A new target needs a record here, its process in `launch.layouts` if `switchml-ctl up` starts it, the compilation of its
P4 program in `dataplane.compiler` if it has one, and a driver in `controller.drivers` if none knows its interface.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from switchml.common.job_numbers import HIGHEST_PORT

__all__ = ["BMV2", "BUILD", "SOFT", "STARTED", "TARGETS", "TOFINO", "Target"]

BUILD: Final = Path(__file__).parent / "p4" / "build"
"""The folder of the compiled P4 programs, with a folder for each target."""


@dataclass(frozen=True, eq=False)
class Target:
    """The abilities and the defaults of the switches of one kind; each kind has one record.

    `programs` are the P4 programs that the driver loads, each with the numbers of values per packet that it is compiled
    for, the default first. Without any, the sizes of a soft switch are configured, and a Tofino has its program
    already, which defines the values per packet (`default_values` is 0). `default_slots` is 0 if `switchml-ctl up`
    does not start the switch. `entry` is the entry file of the P4 program.

    If it can have `udp_ports`, one port can lead to any number of agents, and to IPv4 multicast groups of them; but
    once its process has ended, any user can have its port.
    """

    name: str
    interface: Literal["p4runtime", "bfrt"]
    default_pool: int
    default_values: int = 0
    default_slots: int = 0
    default_device: int = 1  # P4Runtime counts from 1, BfRt from 0
    highest_port: int = HIGHEST_PORT
    udp_ports: bool = False
    programs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    entry: str = ""

    def __str__(self) -> str:
        """Return its name in configuration files."""
        return self.name

    @property
    def configures_ports(self) -> bool:
        """True if the controller sets its ports up, as through BfRt."""
        return self.interface == "bfrt"

    def compiled(self, program: str = "switchml", values: int = 0) -> Path:
        """Return the path of the files of a compiled P4 program, without their suffixes."""
        name = program if values in (0, self.programs[program][0]) else f"{program}_{values}"
        return BUILD / self.name / name


SOFT: Final = Target("soft", "p4runtime", default_pool=512, default_values=256, default_slots=8192, udp_ports=True)

BMV2: Final = Target(
    "bmv2",
    "p4runtime",
    default_pool=32,
    default_values=64,
    default_slots=2048,  # compiled in
    highest_port=HIGHEST_PORT - 1,  # simple_switch drops packets to port 511
    programs={"switchml": (64, 256), "switchml_floats": (64,)},
    entry="v1model/switchml.p4",
)

TOFINO: Final = Target("tofino", "bfrt", default_pool=256, default_device=0, entry="tna/switchml.p4")

TARGETS: Final = {target.name: target for target in (SOFT, BMV2, TOFINO)}
"""All targets, by their names in configuration files."""

STARTED: Final = {name: target for name, target in TARGETS.items() if target.default_slots}
"""Those of switches that `switchml-ctl up` can start on this machine."""
