"""Options: set for the whole process by the environment or `configure`, and for one group by `pg_options`."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal

from switchml.client.arguments import checked_priority
from switchml.client.calls import SkipZeros, checked_skipping
from switchml.client.wire import Blocks, Floats, Integers, Wire, parse_wire, refuse_old_keywords
from switchml.common.names import names_in_list

__all__ = ["Fallback", "Options", "configure", "current_options"]

Fallback = Literal["gloo", "gloo-exact"] | None


@dataclass(frozen=True)
class Options:
    """Options of a process group; pass them as `pg_options` to `init_process_group` or `new_group`.

    Attributes:
        fallback: "gloo": if there is no switch, or it is lost, continue over Gloo, which costs one copy of each tensor;
            "gloo-exact": likewise, but with the same bits as in the network, which is slower over Gloo; None: raise
            `SwitchMLBackendError`. Default: SWITCHML_TORCH_FALLBACK.
        stage_cuda: True: accept CUDA tensors and copy them through pinned memory; False: refuse them. Default:
            SWITCHML_STAGE_CUDA.
        wire: how the values of float32, float16 and bfloat16 travel, as in `Communicator.all_reduce`: `Blocks`, `Codes`
            or `Floats`, or the text of one, such as "blocks:bits=8,rounding=stochastic"; "auto": blocks of 16 bits for
            float16 and bfloat16 in groups of up to 8 ranks, else of 32. The group cannot be made where a switch does
            not sum such codes or floats. Integers are exact with any of them. Default: SWITCHML_TORCH_WIRE.
        skip_zeros: True: all-reduces do not send blocks that are zero, as `Communicator.all_reduce` with it; "auto":
            where earlier results suggest it, and without a change of bits; False: all blocks are sent. Sparse tensors
            (torch.sparse_coo) are all-reduced in the network in any case. Not with `Codes` or `Floats`. Default:
            SWITCHML_TORCH_SKIP_ZEROS.
        priority: from 0 to 7. Where groups share links, or the memory of a switch, those with the highest priority
            send first. Under `switchml-ctl job start` the default group has the job's --priority.
        aggregators: names of soft switches that share the slots of the group's job, as parameter servers do. Default:
            SWITCHML_AGGREGATORS, or else the switch of the agents. A group that is the job of
            `switchml-ctl job start` has the aggregators of that job.

    Raises:
        ValueError: a value is not one of those, or two do not go together.
        TypeError: `wire` is not a wire, `priority` is not an integer, `aggregators` is not a tuple, or there is another
            argument; the message says what to write instead of those of version 0.1.

    """

    fallback: Fallback = None
    stage_cuda: bool = False
    wire: Wire | str = "auto"
    skip_zeros: SkipZeros = False
    priority: int = 0
    aggregators: tuple[str, ...] = ()
    _timeout: ClassVar[None] = None
    """A `DeviceMesh` reads it from the options of any back end; None is the default timeout."""

    def __new__(cls, *_values: object, **given: object) -> Options:
        """Refuse the arguments of earlier versions."""
        refuse_old_keywords("Options", {name: value for name, value in given.items() if not hasattr(cls, name)})
        return super().__new__(cls)

    def __post_init__(self) -> None:
        if self.fallback not in (None, "gloo", "gloo-exact"):
            raise ValueError(f'fallback is {self.fallback!r}; it must be "gloo", "gloo-exact" or None')
        self._check_wire()
        checked_skipping(self.skip_zeros, self.wire if isinstance(self.wire, Wire) else Blocks())
        checked_priority(self.priority)
        if not isinstance(self.aggregators, tuple):
            raise TypeError(f"aggregators is {self.aggregators!r}; it must be a tuple of names of switches")
        names_in_list(",".join(self.aggregators))

    def _check_wire(self) -> None:
        if isinstance(self.wire, str) and self.wire != "auto":
            object.__setattr__(self, "wire", parse_wire(self.wire))
        if self.wire == "auto":
            return
        if not isinstance(self.wire, Wire):
            raise TypeError(
                f'wire is {self.wire!r}; it must be "auto", Blocks(...), Codes(...) or Floats() of switchml'
            )
        if isinstance(self.wire, Integers):
            raise ValueError(f"wire is {self.wire}; it is for floating-point numbers, and integers are always exact")
        if isinstance(self.wire, Floats) and self.fallback == "gloo-exact":
            raise ValueError(
                'sums of Floats() cannot go on over Gloo with the same bits, so there is no fallback="gloo-exact" for '
                'them; use "gloo" or None'
            )


_FALLBACKS: Final[dict[str, object]] = {"": None, "none": None, "gloo": "gloo", "gloo-exact": "gloo-exact"}
_configured: dict[str, object] = {}


def configure(
    *,
    fallback: Fallback | Literal["unset"] = "unset",
    stage_cuda: bool | None = None,
    wire: Wire | str | None = None,
    skip_zeros: SkipZeros | None = None,
    priority: int | None = None,
    aggregators: tuple[str, ...] | None = None,
    **old: object,
) -> Options:
    """Set the options of all process groups that this process makes from now on; they must be the same on every rank.

    These options override SWITCHML_TORCH_FALLBACK (``gloo``, ``gloo-exact`` or ``none``), SWITCHML_STAGE_CUDA (``1`` or
    ``0``), SWITCHML_TORCH_WIRE (``auto``, or the text of a wire) and SWITCHML_TORCH_SKIP_ZEROS (``off``, ``on`` or
    ``auto``); a group's `pg_options` override them.

    Args:
        fallback: see `Options`; unchanged if omitted.
        stage_cuda: see `Options`; unchanged if omitted.
        wire: see `Options`; unchanged if omitted.
        skip_zeros: see `Options`; unchanged if omitted.
        priority: see `Options`; unchanged if omitted.
        aggregators: see `Options`; unchanged if omitted.
        old: no other arguments.

    Returns:
        The options that are in effect now.

    Raises:
        ValueError, TypeError: as of `Options`.

    """
    refuse_old_keywords("configure", old)
    chosen: dict[str, Any] = {}
    if fallback != "unset":
        chosen["fallback"] = fallback
    given: dict[str, object] = {
        "stage_cuda": stage_cuda,
        "wire": wire,
        "skip_zeros": skip_zeros,
        "priority": priority,
        "aggregators": aggregators,
    }
    chosen |= {name: value for name, value in given.items() if value is not None}
    Options(**chosen)
    _configured.update(chosen)
    return current_options()


def current_options() -> Options:
    """Return the options of a group that is made without `pg_options`.

    Raises:
        ValueError: an environment variable has an unknown value.

    """
    options = Options(
        fallback=_choice("SWITCHML_TORCH_FALLBACK", _FALLBACKS),  # type: ignore[arg-type]
        stage_cuda=bool(_choice("SWITCHML_STAGE_CUDA", {"": False, "0": False, "1": True})),
        wire=_wire_of_environment(),
        skip_zeros=_choice("SWITCHML_TORCH_SKIP_ZEROS", {"": False, "off": False, "on": True, "auto": "auto"}),  # type: ignore[arg-type]
    )
    return replace(options, **_configured)  # type: ignore[arg-type]


def _wire_of_environment() -> Wire | Literal["auto"]:
    text = os.environ.get("SWITCHML_TORCH_WIRE") or "auto"
    try:
        return "auto" if text == "auto" else parse_wire(text)
    except ValueError as error:
        raise ValueError(f"SWITCHML_TORCH_WIRE: {error}") from None


def _choice(name: str, values: dict[str, object]) -> object:
    text = os.environ.get(name, "")
    if text not in values:
        raise ValueError(f"{name} is {text!r}; it must be one of {', '.join(repr(value) for value in values if value)}")
    return values[text]
