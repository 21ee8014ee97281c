"""Results whose check failed: tells ranks that call differently from bits that were changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.jobs import printed_ranks
from controller.proto import switchml_pb2 as pb

__all__ = ["Judgement", "judge"]


@dataclass(frozen=True)
class Judgement:
    """What the reports say: CALL_MISMATCH or INTEGRITY, the ranks at fault where that is known, and words."""

    reason: pb.RevocationReason
    ranks: list[int]
    message: str


def judge(reports: Mapping[int, pb.Call], silent: Sequence[int], places: Mapping[int, str]) -> Judgement:
    """Compare the calls in which ranks saw a check fail, and say at which `places`; `silent` ranks have reported none.

    A check that failed although all who reported made the same call means that bits were changed. Of different calls
    the most common one is taken for the meant one.
    """
    groups: dict[bytes, list[int]] = {}
    for rank, call in sorted(reports.items()):
        groups.setdefault(call.SerializeToString(deterministic=True), []).append(rank)
    if len(groups) == 1:
        ranks = next(iter(groups.values()))
        call = reports[ranks[0]]
        return Judgement(
            pb.INTEGRITY,
            [],
            f"the check of a result failed in {_printed(call)}, {_where(places)}: bits were changed in flight or in the"
            " switch",
        )
    said = [f"{printed_ranks(ranks)}: {_printed(reports[ranks[0]])}" for ranks in groups.values()]
    if silent:
        said.append(f"{printed_ranks(list(silent))}: not reported")
    most = max(len(ranks) for ranks in groups.values())
    meant = [ranks for ranks in groups.values() if len(ranks) == most]
    at_fault = sorted(reports) if len(meant) > 1 else sorted(set(reports) - set(meant[0]))
    return Judgement(pb.CALL_MISMATCH, at_fault, f"the ranks call differently: {'; '.join(said)}")


def _where(places: Mapping[int, str]) -> str:
    """Say which ranks saw it at which place."""
    ranks: dict[str, list[int]] = {}
    for rank, place in sorted(places.items()):
        ranks.setdefault(place, []).append(rank)
    return " and ".join(f"on {printed_ranks(those)} at {place}" for place, those in ranks.items())


def _printed(call: pb.Call) -> str:
    root = f" from rank {call.root}" if call.operation == "broadcast" else ""
    return f"call {call.sequence}, {call.operation} of {call.elements} {call.dtype}{root}"
