"""Results whose check failed: tells ranks that call differently from bits that were changed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import printed_ranks

__all__ = ["Judgement", "judge"]


@dataclass(frozen=True)
class Judgement:
    """What the reports say: CALL_MISMATCH or INTEGRITY, the ranks at fault where that is known, and words."""

    reason: pb.RevocationReason
    ranks: list[int]
    message: str


def judge(reports: Mapping[int, pb.Call], silent: Sequence[int], chunks: Mapping[int, int], slots: range) -> Judgement:
    """Compare the calls in which ranks saw a check fail; `silent` ranks have reported none.

    `chunks` are where the ranks saw it first, in the job's `slots`. Ranks that call differently all see the same sum of
    it, which fails; so a check that failed although all who reported made the same call there means that bits were
    changed, and one that failed in another place at each rank means that it happened more than once. Of different calls
    the most common one is taken for the meant one.
    """
    groups: dict[bytes, list[int]] = {}
    for rank, call in sorted(reports.items()):
        groups.setdefault(call.SerializeToString(deterministic=True), []).append(rank)
    if not _differ(reports, chunks):
        where = _where(reports, chunks, slots)
        message = f"the check of a result failed {where}: bits were changed in flight or in the switch"
        return Judgement(pb.REVOCATION_REASON_INTEGRITY, [], message)
    said = [f"{printed_ranks(ranks)}: {_printed(reports[ranks[0]])}" for ranks in groups.values()]
    if silent:
        said.append(f"{printed_ranks(list(silent))}: not reported")
    most = max(len(ranks) for ranks in groups.values())
    meant = [ranks for ranks in groups.values() if len(ranks) == most]
    at_fault = sorted(reports) if len(meant) > 1 else sorted(set(reports) - set(meant[0]))
    return Judgement(pb.REVOCATION_REASON_CALL_MISMATCH, at_fault, f"the ranks call differently: {'; '.join(said)}")


def _differ(reports: Mapping[int, pb.Call], chunks: Mapping[int, int]) -> bool:
    """Tell whether two ranks made different calls at one place: of their streams, or of their sequences of calls."""
    return any(
        reports[one] != reports[other]
        and (chunks[one] == chunks[other] or reports[one].sequence == reports[other].sequence)
        for one, other in itertools.combinations(reports, 2)
    )


def _where(reports: Mapping[int, pb.Call], chunks: Mapping[int, int], slots: range) -> str:
    """Say which ranks saw it in which call and at which place."""
    ranks: dict[str, list[int]] = {}
    for rank, call in sorted(reports.items()):
        slot = slots[chunks[rank] % len(slots)]
        ranks.setdefault(f"in {_printed(call)}, at chunk {chunks[rank]} in slot {slot}", []).append(rank)
    return " and ".join(f"on {printed_ranks(those)} {place}" for place, those in ranks.items())


def _printed(call: pb.Call) -> str:
    root = f" from rank {call.root}" if call.operation == "broadcast" else ""
    op = f" ({call.op})" if call.op else ""
    return f"call {call.sequence}, {call.operation}{op} of {call.elements} {call.dtype}{root}"
