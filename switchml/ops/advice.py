"""Advice on which options of SwitchML make a training program faster, from some of its steps."""

from __future__ import annotations

import dataclasses
import math
import shlex
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

from switchml.ops.step_model import (
    Recording,
    StepCollective,
    Way,
    compressed_way,
    gloo_way,
    network_way,
    predicted,
)

__all__ = ["Advice", "Choice", "advise"]

_WORTH: Final = 1.05  # an option that makes a step less than this much faster is not named
_INFINITE: Final = 1e18  # bytes per second
_DENSITY: Final = 0.01  # of shared Top-k
_MOSTLY_ZERO: Final = 0.5  # share of blocks with values below which leaving out the others may pay


@dataclasses.dataclass(frozen=True)
class Choice:
    """One way to run the program.

    Attributes:
        name: what it is.
        seconds: the predicted time of a step.
        gain: how many times faster that is than over Gloo.
        accuracy: what it does to the results.
        code: what to write in the program, or how to start it.
        variables: those of the environment, with this choice and those before it.
        needs_code: True if the program must be changed for this choice or one before it.
        measured: the time of a step over links of that rate, if it was measured.

    """

    name: str
    seconds: float
    gain: float
    accuracy: str
    code: tuple[str, ...] = ()
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    needs_code: bool = False
    measured: float | None = None

    @property
    def backend(self) -> str:
        """The backend of torch.distributed."""
        return "gloo" if self.name == "gloo" else "switchml"

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines to write, as Python and shell."""
        return self.code + tuple(f"export {name}={value}" for name, value in self.variables.items())

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {**dataclasses.asdict(self), "lines": self.lines}


@dataclasses.dataclass(frozen=True)
class Advice:
    """The findings from the steps of a program. Times are medians, in seconds.

    Attributes:
        workers: the number of ranks.
        rate: bits per second of each rank's link, for which the predictions are.
        gloo_here: a step over Gloo on this machine.
        switch_here: a step through a switch on this machine, by shared memory.
        computing: a step if collectives took no time.
        gloo: the predicted step over Gloo.
        calls: the collectives of a step.
        bytes: their values.
        largest: the bytes of the largest one.
        choices: ways to run the program: over Gloo, through a switch, and then with each option that pays and those
            before it, of which fewer bits take the place of more. If one of them needs a change of the program, fewer
            bits without such a change follow. Compression, with none of the others, comes last.

    """

    workers: int
    rate: int
    gloo_here: float
    switch_here: float
    computing: float
    gloo: float
    calls: int
    bytes: int
    largest: int
    choices: tuple[Choice, ...]

    @property
    def communicating(self) -> float:
        """The share of Gloo's predicted step that is communication which nothing hides."""
        return max(0.0, 1 - self.computing / self.gloo)

    @property
    def left(self) -> float:
        """The same share of the predicted step with all options that pay."""
        return max(0.0, 1 - self.computing / min(choice.seconds for choice in self.choices))

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        shares = {"communicating": self.communicating, "left": self.left}
        return {**dataclasses.asdict(self), **shares, "choices": [choice.as_dict() for choice in self.choices]}

    def with_measured(self, seconds: Mapping[str, float]) -> Advice:
        """Return this advice with the measured time of a step of some choices, by their names."""
        choices = tuple(dataclasses.replace(choice, measured=seconds.get(choice.name)) for choice in self.choices)
        return dataclasses.replace(self, choices=choices)


@dataclasses.dataclass(frozen=True)
class _Option:
    name: str
    accuracy: str
    code: tuple[str, ...] = ()
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    needs_code: bool = False
    bits: int = 32
    skips_zeros: bool = False
    depth: int = 0
    cross: bool = False

    @property
    def way(self) -> Way:
        """The way in which collectives travel."""
        return network_way(self.bits, self.skips_zeros, self.depth, self.cross)

    def after(self, before: _Option) -> _Option:
        """Return this option with those before it."""
        return dataclasses.replace(
            self,
            variables={**before.variables, **self.variables},
            needs_code=self.needs_code or before.needs_code,
            bits=min(self.bits, before.bits),
            skips_zeros=self.skips_zeros or before.skips_zeros,
            depth=max(self.depth, before.depth),
            cross=self.cross or before.cross,
        )

    def unchanged(self) -> _Option:
        """Return this option under the name by which the program is not changed."""
        return dataclasses.replace(self, name=f"{self.name}, and no change of the program")

    def choice(self, seconds: float, over_gloo: float) -> Choice:
        """Return the choice of this option, with which a step takes so long."""
        return Choice(
            self.name, seconds, over_gloo / seconds, self.accuracy, self.code, self.variables, self.needs_code
        )


def _base(command: Sequence[str], workers: int) -> _Option:
    bits = math.floor(32 - math.log2(workers) - math.ceil(math.log2(workers)))  # the bound of `wire.Blocks`
    return _Option(
        "switchml",
        f"float32 sums to 2^-{bits} of the largest magnitude in a packet, the same bits on all ranks",
        ('dist.init_process_group("switchml")', f"switchml-ctl job start --workers {workers} -- {shlex.join(command)}"),
    )


def _options(workers: int) -> tuple[_Option, ...]:
    """Return what a user can add, those without loss first; fewer bits take the place of more."""

    def rounded(bits: int) -> str:
        levels = (2 ** (bits - 1) - 1) // workers  # those of `wire.Blocks`
        return f"gradients rounded to {levels} levels on each side of 0, up to the largest magnitude in a packet"

    return (
        _Option(
            "blocks of zeros left out",
            "float32 sums as before, with a unit for each 256 values",
            variables={"SWITCHML_TORCH_SKIP_ZEROS": "on"},
            skips_zeros=True,
        ),
        _Option(
            "overlap of FSDP's collectives",
            "the same bits",
            ("from switchml.torch.fsdp import overlap", "overlap(model)  # after fully_shard"),
            needs_code=True,
            depth=2,
        ),
        _Option(
            "gradients that travel during the next forward pass",
            "the same averages",
            (
                "from switchml.torch.scheduling import ScheduledOptimizer",
                "optimizer = ScheduledOptimizer(optimizer, model)  # in place of DistributedDataParallel(model)",
            ),
            needs_code=True,
            cross=True,
        ),
        _Option(
            "16 bits for a value",
            f"{rounded(16)}; the trainings of docs/results/pytorch.md end within 0.2 points of float32",
            variables={"SWITCHML_TORCH_WIRE": "blocks:bits=16"},
            bits=16,
        ),
        _Option(
            "8 bits for a value",
            f"{rounded(8)}, right on average; those trainings end up to 0.5 points lower",
            variables={"SWITCHML_TORCH_WIRE": "blocks:bits=8,rounding=stochastic"},
            bits=8,
        ),
    )


def _compression() -> _Option:
    """Return the compression that a switch serves best, since its bytes do not grow with the number of ranks."""
    return _Option(
        f"shared Top-k of {_DENSITY:.0%} in place of all others",
        "each step sends the elements that are largest at one rank, and later what is left (error feedback); it needs "
        "a momentum of 0 and more steps; docs/guides/compression.md compares the methods",
        (
            "from switchml.torch import compression",
            f'state = compression.CompressionState(model, compression.by_name("shared_topk", density={_DENSITY}))',
            "model.register_comm_hook(state, compression.compression_hook)  # model is the DistributedDataParallel",
        ),
        needs_code=True,
    )


def advise(command: Sequence[str], rate: int, traced: Recording, gloo: Recording, switch: Recording) -> Advice:
    """Return advice for links of `rate` bits per second.

    Args:
        command: the program.
        rate: bits per second.
        traced: its steps over Gloo, with their collectives.
        gloo: its steps over Gloo alone.
        switch: its steps through a switch of this machine.

    """
    speed = rate / 8
    collectives = [list(step.values()) for step in traced.collectives]
    over_gloo = _median(traced, gloo_way(), speed)
    every = [one for step in collectives for one in step]
    possible = [option for option in _options(traced.ranks) if _is_possible(option, every)]
    base = _base(command, traced.ranks)
    chosen = [base, *_paying(traced, speed, base, possible)]
    if any(option.needs_code for option in chosen):
        unchanged = next(option for option in reversed(chosen) if not option.needs_code)
        fewer_bits = [option.unchanged() for option in possible if option.bits < base.bits]
        chosen += _paying(traced, speed, unchanged, fewer_bits)
    choices = [Choice("gloo", over_gloo, 1.0, "float32 sums in the order of a ring")]
    choices += [option.choice(_median(traced, option.way, speed), over_gloo) for option in chosen]
    compressed = _median(traced, compressed_way(_DENSITY, traced.compressing), speed)
    if _are_gradients(every) and min(choice.seconds for choice in choices) / compressed >= _WORTH:
        choices.append(_compression().choice(compressed, over_gloo))
    sizes = [one.bytes for one in every]
    return Advice(
        workers=traced.ranks,
        rate=rate,
        gloo_here=statistics.median(gloo.seconds),
        switch_here=statistics.median(switch.seconds),
        computing=_median(traced, gloo_way(), _INFINITE),
        gloo=over_gloo,
        calls=round(statistics.mean(len(step) for step in collectives)),
        bytes=round(statistics.mean(sum(one.bytes for one in step) for step in collectives)),
        largest=max(sizes, default=0),
        choices=tuple(choices),
    )


def _paying(traced: Recording, speed: float, before: _Option, options: Sequence[_Option]) -> list[_Option]:
    """Return the options that make a step faster, each with those before it."""
    found = [before]
    for option in options:
        both = option.after(found[-1])
        if _median(traced, found[-1].way, speed) / _median(traced, both.way, speed) >= _WORTH:
            found.append(both)
    return found[1:]


def _is_possible(option: _Option, collectives: Sequence[StepCollective]) -> bool:
    """Return whether an option can make a difference to a program with these collectives."""
    if option.skips_zeros:
        return any(one.filled <= _MOSTLY_ZERO for one in collectives)
    return not option.cross or _are_gradients(collectives)


def _are_gradients(collectives: Sequence[StepCollective]) -> bool:
    """Return whether a program makes nothing but averages of gradients, as DistributedDataParallel does."""
    return bool(collectives) and all(one.is_float and one.name.startswith("all_reduce") for one in collectives)


def _median(recording: Recording, way: Way, bytes_per_second: float) -> float:
    return statistics.median(predicted(recording, way, bytes_per_second))
