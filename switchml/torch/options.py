"""Options: set for the whole process by the environment or `configure`, and for one group by `pg_options`."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Final, Literal

from switchml.arguments import checked_priority, whole_number
from switchml.calls import FORMS, Sparse
from switchml.common.names import names_in_list
from switchml.lanes import ARITHMETICS, ROUNDINGS, Arithmetic, Rounding

__all__ = ["Fallback", "Options", "configure", "current_options"]

Fallback = Literal["gloo", "gloo-exact"] | None
Wire = Literal["auto", 32, 16, 8]


@dataclass(frozen=True)
class Options:
    """Options of a process group; pass them as `pg_options` to `init_process_group` or `new_group`.

    Attributes:
        fallback: "gloo": if there is no switch, or it is lost, continue over Gloo, which costs one copy of each tensor;
            "gloo-exact": likewise, but with the same bits as in the network, which is slower over Gloo; None: raise
            `SwitchMLBackendError`.
        stage_cuda: True: accept CUDA tensors and copy them through pinned memory; False: refuse them.
        wire: bits that a float32, float16 or bfloat16 takes in packets: 32, 16 or 8; "auto": 16 for float16 and
            bfloat16 in groups of up to 8 ranks, else 32.
        rounding: with 16 or 8 bits, "nearest", or "stochastic" for sums whose expected value is the exact one.
        seed: of stochastic rounding.
        sparse: True: all-reduces do not send blocks that are zero, as `Communicator.all_reduce` with ``sparse=True``;
            "auto": where earlier results suggest it, and without a change of bits; False: all blocks are sent. Sparse
            tensors (torch.sparse_coo) are all-reduced in the network in any case.
        arithmetic: "float": the switch adds up float32, float16 and bfloat16 as floats, as `Communicator.all_reduce`
            does with it; the group cannot be made where a switch does not. "block": in blocks with one exponent. Not
            "float" together with `wire`, `rounding`, `sparse`, or `fallback` "gloo-exact".
        priority: from 0 to 7. Where groups share links, or the memory of a switch, those with the highest priority
            send first. Under `switchml-ctl job start` the default group has the job's --priority.
        aggregators: names of soft switches that share the slots of the group's job, as parameter servers do; without
            them those in SWITCHML_AGGREGATORS, or else the switch of the agents. A group that is the job of
            `switchml-ctl job start` has the aggregators of that job.

    Raises:
        ValueError: a value is not one of those.
        TypeError: `wire`, `seed` or `priority` is not an integer where it must be one, or `aggregators` is not a tuple.

    """

    fallback: Fallback = None
    stage_cuda: bool = False
    wire: Wire = "auto"
    rounding: Rounding = "nearest"
    seed: int = 0
    sparse: Sparse = False
    priority: int = 0
    aggregators: tuple[str, ...] = ()
    arithmetic: Arithmetic = "block"

    def __post_init__(self) -> None:
        if self.fallback not in (None, "gloo", "gloo-exact"):
            raise ValueError(f'fallback is {self.fallback!r}; it must be "gloo", "gloo-exact" or None')
        if self.wire not in ("auto", 32, 16, 8):
            raise ValueError(f'wire is {self.wire!r}; it must be "auto", 32, 16 or 8')
        if self.wire != "auto":
            whole_number(self.wire, "wire")
        if self.rounding not in ROUNDINGS:
            raise ValueError(f'rounding is {self.rounding!r}; it must be "nearest" or "stochastic"')
        if not 0 <= whole_number(self.seed, "seed") < 2**64:
            raise ValueError(f"seed is {self.seed!r}; it must be from 0 to 2^64 - 1")
        if self.sparse not in FORMS:
            raise ValueError(f'sparse is {self.sparse!r}; it must be False, True or "auto"')
        checked_priority(self.priority)
        if not isinstance(self.aggregators, tuple):
            raise TypeError(f"aggregators is {self.aggregators!r}; it must be a tuple of names of switches")
        names_in_list(",".join(self.aggregators))
        self._check_arithmetic()

    def _check_arithmetic(self) -> None:
        if self.arithmetic not in ARITHMETICS:
            raise ValueError(f'arithmetic is {self.arithmetic!r}; it must be "block" or "float"')
        if self.arithmetic == "block":
            return
        if self.wire not in ("auto", 32) or self.rounding != "nearest" or self.sparse:
            raise ValueError('arithmetic="float" has no `wire` of fewer bits, `rounding` or `sparse`; leave them out')
        if self.fallback == "gloo-exact":
            raise ValueError(
                'arithmetic="float" cannot go on over Gloo with the same bits, so it has no fallback="gloo-exact"; use '
                '"gloo" or None'
            )


_FALLBACKS: Final[dict[str, object]] = {"": None, "none": None, "gloo": "gloo", "gloo-exact": "gloo-exact"}
_configured: dict[str, object] = {}


def configure(
    *,
    fallback: Fallback | Literal["unset"] = "unset",
    stage_cuda: bool | None = None,
    wire: Wire | None = None,
    rounding: Rounding | None = None,
    seed: int | None = None,
    sparse: Sparse | None = None,
    priority: int | None = None,
    aggregators: tuple[str, ...] | None = None,
    arithmetic: Arithmetic | None = None,
) -> Options:
    """Set the options of all process groups that this process makes from now on; they must be the same on every rank.

    These options override SWITCHML_TORCH_FALLBACK (``gloo``, ``gloo-exact`` or ``none``), SWITCHML_STAGE_CUDA (``1`` or
    ``0``), SWITCHML_TORCH_WIRE (``auto``, ``32``, ``16`` or ``8``), SWITCHML_TORCH_ROUNDING (``nearest`` or
    ``stochastic``), SWITCHML_TORCH_SPARSE (``off``, ``on`` or ``auto``) and SWITCHML_TORCH_ARITHMETIC (``block`` or
    ``float``); a group's `pg_options` override them.

    Args:
        fallback: see `Options`; unchanged if omitted.
        stage_cuda: see `Options`; unchanged if omitted.
        wire: see `Options`; unchanged if omitted.
        rounding: see `Options`; unchanged if omitted.
        seed: see `Options`; unchanged if omitted.
        sparse: see `Options`; unchanged if omitted.
        priority: see `Options`; unchanged if omitted.
        aggregators: see `Options`; unchanged if omitted.
        arithmetic: see `Options`; unchanged if omitted.

    Returns:
        The options that are in effect now.

    Raises:
        ValueError: a value is not one of those listed in `Options`.
        TypeError: `wire`, `seed` or `priority` is not an integer where it must be one, or `aggregators` is not a tuple.

    """
    chosen: dict[str, object] = {}
    if fallback != "unset":
        chosen["fallback"] = fallback
    given: dict[str, object] = {
        "stage_cuda": stage_cuda,
        "wire": wire,
        "rounding": rounding,
        "seed": seed,
        "sparse": sparse,
        "priority": priority,
        "aggregators": aggregators,
        "arithmetic": arithmetic,
    }
    chosen |= {name: value for name, value in given.items() if value is not None}
    Options(**chosen)  # type: ignore[arg-type]
    _configured.update(chosen)
    return current_options()


def current_options() -> Options:
    """Return the options of a group that is made without `pg_options`.

    Raises:
        ValueError: an environment variable has an unknown value.

    """
    arithmetics: dict[str, object] = {"": "block", **{name: name for name in ARITHMETICS}}
    options = Options(
        arithmetic=_choice("SWITCHML_TORCH_ARITHMETIC", arithmetics),  # type: ignore[arg-type]
        fallback=_choice("SWITCHML_TORCH_FALLBACK", _FALLBACKS),  # type: ignore[arg-type]
        stage_cuda=bool(_choice("SWITCHML_STAGE_CUDA", {"": False, "0": False, "1": True})),
        wire=_choice("SWITCHML_TORCH_WIRE", {"": "auto", "auto": "auto", "32": 32, "16": 16, "8": 8}),  # type: ignore[arg-type]
        sparse=_choice("SWITCHML_TORCH_SPARSE", {"": False, "off": False, "on": True, "auto": "auto"}),  # type: ignore[arg-type]
        rounding=_choice("SWITCHML_TORCH_ROUNDING", {"": "nearest", "nearest": "nearest", "stochastic": "stochastic"}),  # type: ignore[arg-type]
    )
    return replace(options, **_configured)  # type: ignore[arg-type]


def _choice(name: str, values: dict[str, object]) -> object:
    text = os.environ.get(name, "")
    if text not in values:
        raise ValueError(f"{name} is {text!r}; it must be one of {', '.join(repr(value) for value in values if value)}")
    return values[text]
