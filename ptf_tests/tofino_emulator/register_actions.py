"""A single register action of the program, to be compared with the compiler's output for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ptf_tests.tofino_emulator.generate_statements import Source
from ptf_tests.tofino_emulator.generator import GressGenerator
from ptf_tests.tofino_emulator.undefined import ModelError, Undefined

__all__ = ["RegisterAction", "register_actions"]


@dataclass(frozen=True)
class RegisterAction:
    """A register action: ``apply`` takes the stored words and the packet's fields by name, and returns (words, result).

    ``name`` is the compiler's, ``register`` the control plane's without ``pipe.``; ``widths`` are those of the stored
    words, ``inputs`` gives the width of each field that is read. The result is None if the action returns nothing.
    """

    name: str
    register: str
    widths: tuple[int, ...]
    inputs: dict[str, int]
    apply: Callable[[Sequence[int], Mapping[str, int]], tuple[tuple[int, ...], int | None]]


def register_actions(program: Mapping[str, Any]) -> list[RegisterAction]:
    """Return all register actions of both gresses."""
    found = []
    for gress in ("ingress", "egress"):
        parts = program[gress]
        for name, extern in parts["externs"].items():
            if extern["kind"] != "RegisterAction":
                continue
            register = parts["externs"][extern["register"]]
            generator = GressGenerator(gress, parts, Source(), ())
            inputs = generator.write_register_action(name)
            namespace: dict[str, Any] = {"ModelError": ModelError, "Undefined": Undefined}
            exec(generator.source.text, namespace)
            found.append(
                RegisterAction(
                    name.partition(".")[2],
                    register["name"],
                    tuple(abs(width) for width in register["fields"].values()),
                    {one: generator.width_of(one) for one in inputs},
                    namespace["register_action"],
                )
            )
    return found
