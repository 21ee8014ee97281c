"""The accuracy, the bytes and the parts of five trainings: DDP, FSDP, lanes of 16 and 8 bits, DiLoCo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness import Fabric, load, require

_RANKS = 3

MISTAKES = [
    (
        "            fully_shard(layer)\n    fully_shard(network)\n    overlap(network)\n",
        "            pass\n",
        "holds all",
    ),
    (
        "dist.all_reduce(place.grad, op=dist.ReduceOp.AVG, group=group)",
        "dist.all_reduce(place.grad, op=dist.ReduceOp.AVG)",
        "bits for a value",
    ),
    ("            dist.all_reduce(place.grad, op=dist.ReduceOp.AVG, group=group)", "", "different parameters"),
    ("place.grad = place - parameter", "place.grad = parameter - place", "sign"),
]


def check(program: Path) -> None:
    """Run all trainings as one job, and compare them."""
    pupil = load(program)
    with Fabric() as fabric:
        ranks = fabric.succeeding(_RANKS, program).ranks
    said = ranks[0]
    total, accuracy = said["ddp"]["held"], said["ddp"]["accuracy"]
    for name, result in said.items():
        if isinstance(result, dict):
            print(
                f"  {name}: accuracy {result['accuracy']}, {result['bytes']} bytes sent, {result['held']} parameters "
                "held"
            )
    _check_shards([of["fsdp"] for of in ranks.values()], total, accuracy)
    for bits, least in ((16, 0.02), (8, 0.04)):
        result = said[f"lanes of {bits}"]
        share = result["bytes"] / said["ddp"]["bytes"]
        assert abs(share - bits / 32) < 0.02, f"{bits} bits take {share:.1%} of the bytes"
        assert result["accuracy"] > accuracy - least, result
    _check_diloco([of["diloco"] for of in ranks.values()], said["ddp"]["bytes"], accuracy, pupil.INNER)


def _check_shards(results: list[dict[str, Any]], total: int, accuracy: float) -> None:
    for rank, result in enumerate(results):
        require(
            result["held"] < total / _RANKS * 1.1,
            f"hole 1: rank {rank} holds all or nearly all parameters, {result['held']} of {total}: each of {_RANKS} "
            f"ranks has about {total // _RANKS} if every nn.Linear and the network itself are sharded",
        )
    require(
        abs(results[0]["accuracy"] - accuracy) < 0.02,
        f"hole 1: the accuracy is {results[0]['accuracy']} with shards, and {accuracy} with DDP, which makes the "
        "same steps",
    )


def _check_diloco(results: list[dict[str, Any]], ddp_bytes: int, accuracy: float, inner: int) -> None:
    require(
        len({result["sum_of_parameters"] for result in results}) == 1,
        "hole 2: the replicas end with different parameters: the outer gradient must be averaged over all ranks",
    )
    require(
        results[0]["accuracy"] > accuracy - 0.15,
        f"hole 2: the accuracy is {results[0]['accuracy']}, and {accuracy} with DDP. An optimizer moves against the "
        "gradient: with the wrong sign it takes the replicas back from where they have come",
    )
    share = results[0]["bytes"] / ddp_bytes
    right = 8 / 32 / inner
    require(
        share < right * 1.3,
        f"hole 2: rank 0 has sent {share:.2%} of the bytes of DDP, where about {right:.2%} are right: one average in "
        f"{inner} steps, with 8 bits for a value, in `group`",
    )
