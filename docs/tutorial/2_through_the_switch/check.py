"""The same training over Gloo, through the switch, and through one that loses packets; and with a worker that dies."""

from __future__ import annotations

from pathlib import Path

from harness import Fabric, Outcome, require

_RANKS = 3
_DIES_AT = 20
_FAULTS = ("--transport", "udp", "--drop", "0.01", "--duplicate", "0.01", "--delay", "0.01", "--seed", "7")

MISTAKES = [
    ("    return DistributedDataParallel(network)", "    return network", "trains alone"),
    ("dist.init_process_group(backend)", 'dist.init_process_group("gloo")', "no packet"),
    ('"ranks": list(last.ranks)', '"ranks": [dist.get_rank()]', "names the ranks [0]"),
]


def check(program: Path) -> None:
    """Run four jobs, first those that show whether the holes are right."""
    with Fabric() as fabric:
        clean = fabric.succeeding(_RANKS, program)
        _require_one_model(clean)
        require(clean.switch["contributions"] > 0, 'hole 1: the switch has seen no packet: join a group of "switchml"')
        _require_lost_named(fabric.job(_RANKS, program, "--dies-at", str(_DIES_AT)))
        print(f"  rank 1 was killed before step {_DIES_AT}: ranks 0 and 2 failed in this step, and name rank 1")
        gloo = fabric.succeeding(_RANKS, program, "--backend", "gloo")
    exact, other = gloo.ranks[0]["accuracy"], clean.ranks[0]["accuracy"]
    require(abs(exact - other) < 0.02, f"hole 1: the accuracy is {exact} over Gloo, and {other} through the switch")
    print(f"  accuracy {exact} over Gloo, {other} through the switch, which has added up {_shown(clean)}")
    with Fabric(*_FAULTS) as fabric:
        faulty = fabric.succeeding(_RANKS, program)
    same = faulty.ranks[0]["sha256"] == clean.ranks[0]["sha256"]
    require(same, "the parameters have other bits on a network that loses packets, which must not be")
    print(f"  with lost, doubled and delayed packets the parameters are the same bits, after {_shown(faulty)}")


def _require_lost_named(killed: Outcome) -> None:
    for rank in (0, 2):
        said = killed.ranks.get(rank, {})
        last = killed.outputs[rank].strip().splitlines()[-1:]
        require("reason" in said, f"hole 2: rank {rank} does not say why its step failed; its last line: {last}")
        require(
            (said["reason"], said["ranks"]) == ("WorkerLost", [1]),
            f"hole 2: rank 1 was killed, and rank {rank} names the ranks {said['ranks']}, with the reason "
            f"{said['reason']!r}: WorkerLost and [1] are right",
        )
        require(said["step"] == _DIES_AT, f"rank {rank} failed in step {said['step']}, where {_DIES_AT} is right")


def _require_one_model(done: Outcome) -> None:
    models = {said["sha256"] for said in done.ranks.values()}
    require(
        len(models) == 1,
        f"hole 1: the {_RANKS} ranks have {len(models)} different models at the end, so that each trains alone: the "
        "gradients are not averaged",
    )


def _shown(done: Outcome) -> str:
    added, dropped, resent = (done.switch[name] for name in ("contributions", "duplicate", "resent"))
    return f"{added} packets, dropped {dropped} duplicates and resent {resent} results"
