"""Orders of ranks by the paths between hosts: the figures of Cloud Collectives, and the files of probes."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from switchml.common.errors import NoProbeError, ProbeMatrixError
from switchml.controller.northbound.probes import rounds
from switchml.ops.probe_matrix import load
from switchml.ops.rank_order import Matrix, best_order, cost, leaves, means

HOSTS = 16
RACK, POD, FAR = 1.0, 3.0, 6.0


def racks_and_pods(numbers: list[int]) -> Matrix:
    """Return the costs between hosts with these numbers: racks of four, two racks in a pod, two pods."""
    rack, pod = np.array(numbers) // 4, np.array(numbers) // 8
    matrix = np.where(rack[:, None] == rack, RACK, np.where(pod[:, None] == pod, POD, FAR))
    return np.where(np.eye(len(numbers)), 0.0, matrix)


def shuffled(seed: int) -> list[int]:
    return [int(number) for number in np.random.default_rng(seed).permutation(HOSTS)]


def noisy(matrix: Matrix, seed: int) -> Matrix:
    noise = np.random.default_rng(seed).uniform(0.7, 1.3, matrix.shape)
    once = np.triu(noise)
    measured: Matrix = matrix * (once + once.T)
    return measured


def test_a_ring_crosses_each_rack_once() -> None:
    random = [cost("ring", racks_and_pods(list(range(HOSTS))), shuffled(seed)) for seed in range(1000)]
    assert np.mean(random) == pytest.approx(67.3, abs=0.5)
    for seed in range(10):
        numbers = shuffled(seed)
        matrix = racks_and_pods(numbers)
        found = best_order("ring", matrix)
        assert sorted(found) == list(range(HOSTS))
        assert found[0] == 0
        assert cost("ring", matrix, found) == 12 * RACK + 2 * POD + 2 * FAR == 30


@pytest.mark.parametrize("seed", range(10))
def test_noise_of_the_probe_changes_nothing(seed: int) -> None:
    matrix = racks_and_pods(shuffled(seed))
    measured = noisy(matrix, seed)
    assert cost("ring", matrix, best_order("ring", measured)) == 30
    assert cost("halving-doubling", matrix, best_order("halving-doubling", measured)) == 3
    assert leaves(measured) == leaves(matrix)


def test_halving_and_doubling_needs_an_order_of_its_own() -> None:
    numbers = list(range(HOSTS))
    random = [cost("halving-doubling", racks_and_pods(numbers), shuffled(seed)) for seed in range(1000)]
    assert np.mean(random) == pytest.approx(11.2, abs=0.1)
    # Most data goes to the neighbour in bit 0, least to that in bit 3.
    assert cost("halving-doubling", racks_and_pods(numbers), numbers) == pytest.approx(3.0)
    for seed in range(4):
        matrix = racks_and_pods(shuffled(seed))
        assert cost("halving-doubling", matrix, best_order("halving-doubling", matrix)) == pytest.approx(3.0)
    # This ring is among the best, and begins in the middle of a rack.
    ring = [*numbers[2:], *numbers[:2]]
    assert cost("ring", racks_and_pods(numbers), ring) == 30
    assert cost("halving-doubling", racks_and_pods(numbers), ring) > 6


def test_ranks_beyond_a_power_of_two_give_their_data_to_a_neighbour() -> None:
    matrix = np.array([[0, 1, 5, 5], [1, 0, 5, 5], [5, 5, 0, 2], [5, 5, 2, 0]], dtype=np.float64)
    three = matrix[:3, :3]
    assert cost("halving-doubling", three, [0, 1, 2]) == 2 * 1 + 2 * 5 / 2
    assert cost("halving-doubling", three, [0, 2, 1]) == 2 * 5 + 2 * 5 / 2
    assert cost("halving-doubling", three, best_order("halving-doubling", three)) == 7


@pytest.mark.parametrize("count", [3, 5, 12, 33])
@pytest.mark.parametrize("algorithm", ["ring", "halving-doubling"])
def test_an_order_is_never_worse_than_the_given_one(algorithm: str, count: int) -> None:
    random = np.random.default_rng(count).uniform(1, 9, (count, count))
    matrix = random + random.T
    found = best_order(algorithm, matrix)
    assert sorted(found) == list(range(count))
    assert cost(algorithm, matrix, found) <= cost(algorithm, matrix, range(count))
    assert best_order(algorithm, matrix) == found


def test_hosts_that_share_a_leaf() -> None:
    for seed in range(10):
        numbers = shuffled(seed)
        racks: dict[int, list[int]] = {}
        for host, number in enumerate(numbers):
            racks.setdefault(number // 4, []).append(host)
        matrix = racks_and_pods(numbers)
        found = leaves(matrix)
        assert found == sorted(racks.values())
        assert means(matrix, found) == {"within": RACK, "between": pytest.approx((4 * POD + 8 * FAR) / 12)}


def test_hosts_without_racks_share_one_leaf() -> None:
    same = noisy(1 - np.eye(6), 1)
    assert leaves(same) == [list(range(6))]
    assert means(same, leaves(same)).keys() == {"within"}


@pytest.mark.parametrize("count", [3, 4, 9, 16])
def test_in_a_tournament_each_two_meet_once(count: int) -> None:
    played = list(rounds(count))
    assert len(played) == count - 1 + count % 2
    meetings = [pair for pairs in played for pair in pairs]
    assert len(set(meetings)) == len(meetings) == math.comb(count, 2)
    for pairs in played:
        players = [player for pair in pairs for player in pair]
        assert len(set(players)) == len(players)


# ---- files ----------------------------------------------------------------------------------------------------------


def content(**changes: Any) -> dict[str, Any]:
    hosts = [{"name": f"h{n}", "host": f"host-{n}", "address": f"10.0.0.{n}"} for n in range(3)]
    round_trips = [[0, 10, 20], [10, 0, 30], [20, 30, 0]]
    plain = {"time": time.time(), "hosts": hosts, "round_trip_us": round_trips, "bytes_per_second": None}
    return plain | changes


def written(directory: Path, **changes: Any) -> Path:
    file = directory / "probe.json"
    file.write_text(json.dumps(content(**changes)))
    return file


def test_a_matrix_of_round_trips(tmp_path: Path) -> None:
    matrix = load(written(tmp_path))
    assert (matrix.unit, matrix.remarks()) == ("us", [])
    assert matrix.costs().tolist() == pytest.approx(np.array(content()["round_trip_us"]))
    assert matrix.as_dict().keys() == content().keys()


def test_of_rates_the_slower_direction_counts_and_that_is_said(tmp_path: Path) -> None:
    rates = [[0, 1 << 20, 1 << 30], [1 << 19, 0, 1 << 30], [1 << 30, 1 << 30, 0]]
    matrix = load(written(tmp_path, bytes_per_second=rates))
    assert matrix.unit == "ms/MiB"
    assert matrix.costs()[0, 1] == matrix.costs()[1, 0] == pytest.approx(2000)
    assert matrix.costs()[2, 0] == pytest.approx(1000 / 1024)
    (said,) = matrix.remarks()
    assert said == "paths that are slower in one direction: 1, such as from h1 to h0; the slower direction counts"


def test_an_old_matrix_is_used_with_a_warning(tmp_path: Path) -> None:
    (said,) = load(written(tmp_path, time=time.time() - 3 * 86400)).remarks()
    assert said.startswith("the probe is 3.0 days old")
    assert "switchml-ctl probe" in said


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"hosts": content()["hosts"][:2]}, "it has 2 hosts, and an order needs 3 to 256"),
        ({"hosts": [content()["hosts"][0]] * 3}, "two hosts have the same name"),
        ({"hosts": 3}, "TypeError"),
        ({"hosts": [{"name": "h"}] * 3}, "KeyError"),
        ({"round_trip_us": [[0, 1], [1, 0]]}, r"round_trip_us has the shape \(2, 2\), and there are 3 hosts"),
        ({"round_trip_us": [[0, 1, 1], [1, 0], [1]]}, "ValueError"),
        ({"bytes_per_second": [[0, 1, 1], [1, 0, -1], [1, 1, 0]]}, "not a positive number"),
        ({"round_trip_us": [[0, 1, 1], [1, 0, math.inf], [1, 1, 0]]}, "not a positive number"),
    ],
)
def test_a_file_without_a_matrix(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ProbeMatrixError, match=why):
        load(written(tmp_path, **changes))


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(NoProbeError, match="`switchml-ctl probe` measures the paths"):
        load(tmp_path / "probe.json")
