"""The rank that the others wait for, and the leaf below which it is."""

from __future__ import annotations

from switchml.controller.proto import switchml_pb2 as pb
from switchml.ops.stragglers import lag, straggler


def job(*ranks: tuple[str, int], tree: bool = True) -> pb.Job:
    """Return a job with these ranks' switches and positions."""
    names = ["spine", "leaf1", "leaf2"] if tree else ["leaf1"]
    return pb.Job(
        switches=[pb.JobSwitch(switch=name, upstream="spine" if tree and name != "spine" else "") for name in names],
        ranks=[pb.Rank(rank=number, switch=switch, position=at) for number, (switch, at) in enumerate(ranks)],
    )


def test_it_is_named_with_its_leaf() -> None:
    found = job(("leaf1", 5000), ("leaf2", 3000), ("leaf2", 5000))
    slowest = straggler(found)
    assert slowest is not None
    assert (slowest.rank, slowest.switch, slowest.behind) == (1, "leaf2", 2000)
    assert lag(found) == "rank 1 below leaf2 is 2,000 behind"


def test_a_job_on_one_switch_has_no_leaves() -> None:
    assert lag(job(("leaf1", 7), ("leaf1", 6), tree=False)) == "rank 1 is 1 behind"


def test_a_job_over_aggregators_has_no_leaves() -> None:
    found = job(("h1", 7), ("h2", 6))
    for place in found.switches:
        place.upstream = ""
    assert lag(found) == "rank 1 is 1 behind"


def test_no_rank_lags() -> None:
    assert lag(job(("leaf1", 7), ("leaf2", 7))) == lag(job()) == ""
