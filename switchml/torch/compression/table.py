"""The methods by their names, and what each of them may be combined with."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from typing import Any, Final, Literal

from switchml.torch.compression import codes, control, gathers, rotations, sums, thresholds
from switchml.torch.compression.compressor import Compressor
from switchml.torch.compression.memory import Memory, NoMemory, memory_of
from switchml.torch.compression.requests import Gather

__all__ = ["METHODS", "by_name", "memory_for", "require_scatterable", "table"]

_CLASSES: Final[Sequence[type[Compressor]]] = (
    sums.Dense,
    sums.Lanes,
    sums.SummedCodes,
    control.DelayControl,
    sums.Int8,
    sums.Qsgd,
    sums.TernGrad,
    rotations.Thc,
    sums.Sign,
    sums.Signum,
    sums.EFSign,
    sums.RandomK,
    sums.SharedTopK,
    thresholds.SharedSidco,
    sums.BlockTopK,
    gathers.OneBit,
    gathers.TopK,
    gathers.ThresholdV,
    gathers.Dgc,
    gathers.AdaQ,
    thresholds.Sidco,
    thresholds.HardThreshold,
    codes.Inceptionn,
    codes.SketchML,
    codes.Natural,
    codes.Dynamic8,
)

METHODS: Final[dict[str, type[Compressor]]] = {kind.name: kind for kind in _CLASSES}
"""The class of each method."""


def by_name(name: str, **options: Any) -> Compressor:
    """Return a new compressor.

    Args:
        name: a key of `METHODS`.
        options: the arguments of its class.

    Raises:
        ValueError: there is no such method, or an argument is wrong.
        TypeError: the method has no such argument.

    """
    if name == "powersgd":
        raise ValueError(
            "PowerSGD is PyTorch's own hook: register InOrder(PowerSGDState(None), powerSGD_hook) with in_order_hook "
            "(switchml.torch.hooks)"
        )
    if name not in METHODS:
        raise ValueError(f"{name!r} is not a method of compression; choose one of {', '.join(METHODS)}")
    kind = METHODS[name]
    known = _arguments(kind)
    unknown = [option for option in options if option not in known]
    if unknown:
        raise TypeError(f"{name} has no argument {unknown[0]!r}; it has {', '.join(known) or 'none'}")
    return kind(**options)


def memory_for(compressor: Compressor, memory: Memory | Literal["auto", "none"]) -> Memory:
    """Return the memory to use with a compressor.

    Args:
        compressor: the compressor.
        memory: "auto" for the one it is meant for, "none" for no memory, or a memory.

    Raises:
        ValueError: the compressor cannot be used with this memory.
        TypeError: `memory` is something else.

    """
    if memory == "auto":
        return memory_of(compressor.memory)
    if memory == "none":
        return NoMemory()
    if not isinstance(memory, Memory):
        raise TypeError(f'memory is {memory!r}; it must be "auto", "none" or an object such as ErrorFeedback()')
    if memory.needs_own and not compressor.knows_own:
        raise ValueError(
            f"{compressor.name} does not know what it has sent, so it cannot be used with {memory.name}; use another "
            'method, or memory="none"'
        )
    if isinstance(memory, NoMemory) and compressor.memory != "none":
        raise ValueError(
            f"{compressor.name} is biased, and without {compressor.memory} its errors add up. If that is what you "
            'want, write memory="none"'
        )
    if memory.needs_own and compressor.unbiased:
        warnings.warn(
            f"{compressor.name} is unbiased; with {memory.name} its results get worse in most trainings", stacklevel=3
        )
    return memory


def require_scatterable(compressor: Compressor) -> None:
    """Check that each rank can decode a part of the result.

    Raises:
        ValueError: it cannot.

    """
    if not compressor.positional or len(compressor.requests) != 1:
        usable = ", ".join(kind.name for kind in _CLASSES if kind.positional)
        raise ValueError(
            f"{compressor.name} cannot be used in a reduce-scatter, because a part of its result does not stand for "
            f"the same part of the gradient; use one of {usable}"
        )


def table() -> str:
    """Return the table of methods in docs/guides/compression.md."""
    lines = [
        "| method | result | requests | in the switch | bits sent | unbiased | memory | arguments |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind in _CLASSES:
        requests = ", ".join(request.__name__ for request in kind.requests)
        summed = "gathered" if Gather in kind.requests else "summed"
        unbiased = "yes" if kind.unbiased else "no"
        arguments = ", ".join(f"{name}={value!r}" for name, value in _arguments(kind).items())
        result = (kind.__doc__ or "").splitlines()[0].rstrip(".")
        lines.append(
            f"| `{kind.name}` | {result} | {requests} | {summed} | {kind.sent} | {unbiased} | {kind.memory} "
            f"| {arguments} |"
        )
    return "\n".join(lines)


def _arguments(kind: type[Compressor]) -> dict[str, Any]:
    """Return the arguments of a method and their defaults."""
    if kind.__init__ is object.__init__:
        return {}
    parameters = list(inspect.signature(kind).parameters.values())
    return {parameter.name: parameter.default for parameter in parameters}
