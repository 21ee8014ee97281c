"""The matrix of a probe: its file in the run directory, and the costs of its paths."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from switchml.common.errors import NoProbeError, ProbeMatrixError
from switchml.controller.proto import switchml_pb2 as pb
from switchml.ops.rank_order import Matrix

__all__ = ["FILE_NAME", "ProbedHost", "ProbeMatrix", "load"]

FILE_NAME: Final = "probe.json"
"""The name of the file in the run directory."""

_FEWEST, _MOST = 3, 256
_DAY: Final = 86400.0
_ASYMMETRIC: Final = 1.25  # a path whose directions differ by more is mentioned
_MIB: Final = 1 << 20


@dataclass(frozen=True)
class ProbedHost:
    """An agent that has taken part, with its host and the address of its data interface."""

    name: str
    host: str
    address: str


@dataclass(frozen=True)
class ProbeMatrix:
    """The measurements of a probe at a `time`: round trips in seconds and, unless None, bytes per second.

    A row is the agent that sends, a column the one that receives.
    """

    time: float
    hosts: Sequence[ProbedHost]
    round_trips: Matrix
    rates: Matrix | None

    @classmethod
    def of(cls, result: pb.ProbeResult) -> ProbeMatrix:
        """Return the matrix of a probe."""
        hosts = [ProbedHost(agent.name, agent.host, agent.address) for agent in result.agents]
        round_trips, rates = np.zeros((2, len(hosts), len(hosts)))
        for pair in result.pairs:
            round_trips[pair.one, pair.other] = round_trips[pair.other, pair.one] = pair.round_trip
            rates[pair.one, pair.other] = pair.bytes_per_second
            rates[pair.other, pair.one] = pair.bytes_per_second_back
        return cls(result.time, hosts, round_trips, rates if rates.any() else None)

    def as_dict(self) -> dict[str, Any]:
        """Return it as its file has it."""
        return {
            "time": self.time,
            "hosts": [asdict(host) for host in self.hosts],
            "round_trip_us": np.round(1e6 * self.round_trips, 3).tolist(),
            "bytes_per_second": None if self.rates is None else np.round(self.rates).tolist(),
        }

    @property
    def unit(self) -> str:
        """The unit of the costs."""
        return "us" if self.rates is None else "ms/MiB"

    def costs(self) -> Matrix:
        """Return the costs of the paths: of rates the time for a MiB, otherwise the round trips.

        The slower direction of a path counts.
        """
        costs = self._directed_costs()
        return np.where(costs > costs.T, costs, costs.T)

    def remarks(self) -> list[str]:
        """Return what one should know before using it."""
        said = []
        days = (time.time() - self.time) / _DAY
        if days > 1:
            said.append(f"the probe is {days:.1f} days old, and hosts may have moved: `switchml-ctl probe` renews it")
        costs = self._directed_costs()
        apart = costs > _ASYMMETRIC * costs.T
        if apart.any():
            one, other = (int(place) for place in np.argwhere(apart)[0])
            said.append(
                f"paths that are slower in one direction: {int(apart.sum())}, such as from {self.hosts[one].name} to"
                f" {self.hosts[other].name}; the slower direction counts"
            )
        return said

    def _directed_costs(self) -> Matrix:
        if self.rates is None:
            return 1e6 * self.round_trips
        costs = np.zeros_like(self.rates)
        np.divide(1e3 * _MIB, self.rates, out=costs, where=~np.eye(len(costs), dtype=bool))
        return costs


def load(path: Path) -> ProbeMatrix:
    """Return the matrix in a file.

    Raises:
        NoProbeError: the file does not exist.
        ProbeMatrixError: it is not such a matrix.

    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NoProbeError(f"{path} does not exist; `switchml-ctl probe` measures the paths and writes it") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ProbeMatrixError(f"{path} cannot be read: {error}") from None
    try:
        hosts = [ProbedHost(str(one["name"]), str(one["host"]), str(one["address"])) for one in content["hosts"]]
        round_trips = np.array(content["round_trip_us"], dtype=np.float64) / 1e6
        rates = content["bytes_per_second"]
        matrix = ProbeMatrix(
            float(content["time"]), hosts, round_trips, None if rates is None else np.array(rates, dtype=np.float64)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ProbeMatrixError(f"{path} is not the matrix of a probe: {error!r}") from None
    problem = _problem(matrix)
    if problem:
        raise ProbeMatrixError(f"{path} is not the matrix of a probe: {problem}")
    return matrix


def _problem(matrix: ProbeMatrix) -> str:
    """Return why a matrix cannot be used; an empty string if it can."""
    count = len(matrix.hosts)
    if not _FEWEST <= count <= _MOST:
        return f"it has {count} hosts, and an order needs {_FEWEST} to {_MOST}"
    if len({host.name for host in matrix.hosts}) < count:
        return "two hosts have the same name"
    for name, values in (("round_trip_us", matrix.round_trips), ("bytes_per_second", matrix.rates)):
        if values is None:
            continue
        if values.shape != (count, count):
            return f"{name} has the shape {values.shape}, and there are {count} hosts"
        paths = values[~np.eye(count, dtype=bool)]
        if not (np.isfinite(paths).all() and (paths > 0).all()):
            return f"{name} has a path whose value is not a positive number"
    return ""
