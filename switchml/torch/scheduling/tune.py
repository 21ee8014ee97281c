"""Search for the partition and the credit with which steps are shortest, while training goes on."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping
from typing import Any, Final

from switchml.client.arguments import whole_number
from switchml.common.installation import install_command

__all__ = ["LATENCY", "Knob", "Search", "Tuner"]

LATENCY: Final = 2
"""Steps from a decision of rank 0 until it acts: its word travels with one step, and all have it in the next one."""

_RANDOM_POINTS: Final = 5  # before the model of a Gaussian process chooses


@dataclasses.dataclass(frozen=True)
class Knob:
    """A range of numbers, searched on a logarithmic scale if `log`."""

    low: float
    high: float
    log: bool = False


class Search:
    """A Bayesian search for the least value of a function that is only known at points, by Optuna's GPSampler.

    Args:
        knobs: the ranges, by name.
        points: the number of points.
        seed: of the search.

    Raises:
        ModuleNotFoundError: Optuna is not installed.

    """

    def __init__(self, knobs: Mapping[str, Knob], points: int, seed: int = 0) -> None:
        try:
            import optuna
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"tuning needs Optuna: {install_command('tune')}") from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=_RANDOM_POINTS)
        self._study = optuna.create_study(sampler=sampler)
        self._ranges = {
            name: optuna.distributions.FloatDistribution(knob.low, knob.high, log=knob.log)
            for name, knob in knobs.items()
        }
        self._left = points
        self._trial: Any = None

    def ask(self) -> dict[str, float]:
        """Return the next point; the best one when all points have been tried."""
        if self._left == 0:
            return dict(self._study.best_params)
        self._left -= 1
        self._trial = self._study.ask(self._ranges)
        return dict(self._trial.params)

    def tell(self, value: float) -> None:
        """Give the value of the last point that `ask` returned."""
        self._study.tell(self._trial, value)

    @property
    def ended(self) -> bool:
        """True if there are no more points to try."""
        return self._left == 0


class Tuner:
    """Tunes the partition and the credit of a policy: `ScheduledOptimizer(..., tuner=Tuner())`, on all ranks.

    Rank 0 times steps and decides. The value of a point is the median of its steps. After `points` points the best one
    stays.

    Args:
        points: the number of points.
        steps: steps that are timed with each point.
        partition, credit: the ranges in bytes.
        seed: of the search.

    Raises:
        ValueError: a number is not positive, or a range is empty or too large.
        TypeError: a number is not an integer.

    """

    def __init__(
        self,
        points: int = 15,
        steps: int = 20,
        partition: tuple[int, int] = (128 << 10, 32 << 20),
        credit: tuple[int, int] = (256 << 10, 64 << 20),
        seed: int = 0,
    ) -> None:
        for name, value in (("points", points), ("steps", steps)):
            if whole_number(value, name) < 1:
                raise ValueError(f"{name} is {value}; it must be positive")
        for name, (low, high) in (("partition", partition), ("credit", credit)):
            if not 1 <= whole_number(low, name) < whole_number(high, name) < 2**31:
                raise ValueError(f"{name} is {(low, high)}; it must be a smallest and a larger number, below 2^31")
        self._knobs = {"partition": Knob(*partition, log=True), "credit": Knob(*credit, log=True)}
        self._points, self._steps, self._seed = points, steps, seed
        self._search: Search | None = None
        self._seconds: list[float] = []
        self._skip = 0  # steps that do not show the point yet
        self._ended = False
        self._point: tuple[int, int] | None = None

    @property
    def point(self) -> tuple[int, int] | None:
        """The partition and the credit that rank 0 has decided on; None on other ranks, and before the first step."""
        return self._point

    @property
    def ended(self) -> bool:
        """True on rank 0 once the best point has been chosen."""
        return self._ended

    def start(self) -> None:
        """Choose the first point; on rank 0 only.

        Raises:
            ModuleNotFoundError: Optuna is not installed.

        """
        self._search = Search(self._knobs, self._points, self._seed)
        self._ask(self._search)

    def took(self, seconds: float) -> None:
        """Give the time of a step; on rank 0 only."""
        search = self._search
        assert search is not None  # started
        if self._ended:
            return
        if self._skip > 0:
            self._skip -= 1
            return
        self._seconds.append(seconds)
        if len(self._seconds) == self._steps:
            search.tell(statistics.median(self._seconds))
            self._ended = search.ended
            self._ask(search)

    def _ask(self, search: Search) -> None:
        found = search.ask()
        self._point = round(found["partition"]), round(found["credit"])
        self._seconds = []
        self._skip = LATENCY + 1  # and a step in which both are in flight
