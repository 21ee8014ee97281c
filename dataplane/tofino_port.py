"""The settings of a port of a Tofino, as configuration and topology files have them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from switchml.common.job_numbers import HIGHEST_PORT
from switchml.dataplane.targets import TOFINO

__all__ = ["TofinoPort"]

_NAME = re.compile(r"[0-9]{1,3}/[0-7]")
_CHOICES = {
    "speed": ("1G", "10G", "25G", "40G", "50G", "100G"),
    "fec": ("none", "firecode", "rs"),
    "autonegotiation": ("default", "on", "off"),
    "role": ("host", "recirculation"),
}


@dataclass(frozen=True)
class TofinoPort:
    """A port that the controller configures; one with the role recirculation needs no number."""

    name: str
    number: int = 0
    speed: str = ""
    fec: str = "none"
    autonegotiation: str = "default"
    role: str = "host"

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            ValueError: a value is not allowed.

        """
        where = f"port {self.name!r}"
        if not self.internal and not _NAME.fullmatch(self.name):
            raise ValueError(
                f"{where}: name must be CONNECTOR/CHANNEL of the front panel, as 1/0, or the number of an internal port"
            )
        for key, allowed in _CHOICES.items():
            value = getattr(self, key)
            unset = key == "speed" and self.internal and not value
            if not unset and value not in allowed:
                raise ValueError(f"{where}: {key} is {value!r} and must be {', '.join(allowed)}")
        if self.role == "host" and self.internal:
            raise ValueError(f"{where} is internal, and only a port of the front panel has a host")
        if self.role == "host" and not 1 <= self.number <= TOFINO.highest_port:
            raise ValueError(f"{where}: number is {self.number} and must be 1 to {TOFINO.highest_port}")

    @property
    def internal(self) -> bool:
        """True if it has no place on the front panel; its name is then its device port."""
        return self.name.isascii() and self.name.isdigit() and int(self.name) <= HIGHEST_PORT
