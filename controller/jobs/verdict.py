"""The cause of a failed check: ranks that made different calls, or corrupted bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import printed_ranks

__all__ = ["Judgement", "judge"]


@dataclass(frozen=True)
class Judgement:
    """The conclusion from the reports: CALL_MISMATCH or INTEGRITY, the ranks at fault if known, and a message."""

    reason: pb.RevocationReason
    ranks: list[int]
    message: str


def judge(reports: Mapping[int, pb.Call], silent: Sequence[int], chunks: Mapping[int, int], slots: range) -> Judgement:
    """Compare the calls in which ranks saw a check fail; `silent` ranks have reported none.

    `chunks` are the chunks at which the ranks first saw a failure, in the job's `slots`. If ranks make different calls,
    all of them see the same sum, which fails. So if a check failed although all reporting ranks made the same call
    there, bits were corrupted; if it failed at different chunks on different ranks, this happened more than once. The
    most common one of different calls is assumed to be the intended one.
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
    """Return whether two ranks made different calls at the same position of their streams or sequences of calls."""
    calls: dict[tuple[str, int], bytes] = {}  # the first one at each position
    for rank, call in reports.items():
        made = call.SerializeToString(deterministic=True)
        for position in (("chunk", chunks[rank]), ("sequence", call.sequence)):
            if calls.setdefault(position, made) != made:
                return True
    return False


def _where(reports: Mapping[int, pb.Call], chunks: Mapping[int, int], slots: range) -> str:
    """Return a description of the calls and chunks at which ranks saw the failure."""
    ranks: dict[str, list[int]] = {}
    for rank, call in sorted(reports.items()):
        slot = slots[chunks[rank] % len(slots)]
        ranks.setdefault(f"in {_printed(call)}, at chunk {chunks[rank]} in slot {slot}", []).append(rank)
    return " and ".join(f"on {printed_ranks(those)} {place}" for place, those in ranks.items())


def _printed(call: pb.Call) -> str:
    root = f" from rank {call.root}" if call.operation == "broadcast" else ""
    op = f" ({call.op})" if call.op else ""
    return f"call {call.sequence}, {call.operation}{op} of {call.elements} {call.dtype}{root}"
