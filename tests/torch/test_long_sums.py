"""Large sums of int64: they take the network or Gloo, as their values need, at the same calls of all ranks."""

import os
import signal

import pytest
import torch
import torch.distributed as dist

import switchml.torch
from switchml.torch.long_sums import CALLS_BETWEEN_LOOKS, LongSums, LongSumTurn
from switchml.torch.paths import LEAST_LONG_SUM_BYTES, LONG_SUMS_OVER_GLOO, path_of_long_sum
from tests.torch.torch_harness import Ranks

LEAST = LEAST_LONG_SUM_BYTES // 8  # elements
WORLD_SIZE = 4
GLOO = {"SWITCHML_TORCH_FALLBACK": "gloo"}


@pytest.fixture
def ranks(over_switch: Ranks) -> Ranks:
    """Provide ranks whose sums take words of packets."""
    return over_switch


def contribution(rank: int, call: int, bits: int, elements: int = LEAST) -> torch.Tensor:
    """Return integers with magnitudes below 2^bits, of which many come close to it."""
    generator = torch.Generator().manual_seed(1000 * call + rank)
    return torch.randint(-(2**bits), 2**bits - 1, (elements,), generator=generator)


def require_sum(x: torch.Tensor, call: int, bits: int) -> None:
    """Check a sum of the contributions of all ranks to a call, modulo 2^64."""
    expected = sum(contribution(rank, call, bits, x.numel()) for rank in range(dist.get_world_size()))
    assert torch.equal(x, expected), call


def took_gloo(act: object, *arguments: object) -> bool:
    """Return whether a call of `act` made a large sum over Gloo."""
    before = switchml.torch.statistics()["long_sums_over_gloo"]
    act(*arguments)  # type: ignore[operator]
    return switchml.torch.statistics()["long_sums_over_gloo"] > before


# ---- the order of looks ----------------------------------------------------------------------------------------------


def taken(sums: LongSums, nbytes: int) -> LongSumTurn:
    turn = sums.next_turn(nbytes)
    assert turn is not None
    sums.take(turn)
    return turn


def test_sums_follow_the_look_of_their_size() -> None:
    sums = LongSums()
    assert sums.next_turn(LEAST_LONG_SUM_BYTES - 1) is None

    def path_of(turn: LongSumTurn) -> str | None:
        return turn.path(WORLD_SIZE, "shared memory")

    look = taken(sums, LEAST_LONG_SUM_BYTES)
    followers = [taken(sums, LEAST_LONG_SUM_BYTES + 8) for _ in range(CALLS_BETWEEN_LOOKS)]
    other = taken(sums, 4 * LEAST_LONG_SUM_BYTES)
    assert [path_of(turn) for turn in (look, other, followers[0])] == ["network", "network", None]
    look.ended(3 * LEAST_LONG_SUM_BYTES // 2)  # three words for each element
    assert {path_of(turn) for turn in followers} == {"gloo"}
    again = taken(sums, LEAST_LONG_SUM_BYTES)
    assert again.is_look
    assert path_of(again) == "network"
    after = taken(sums, LEAST_LONG_SUM_BYTES)
    assert path_of(after) is None
    again.ended(LEAST_LONG_SUM_BYTES // 2)
    assert path_of(after) == "network"
    assert {path_of(turn) for turn in followers} == {"gloo"}


def test_a_sum_that_was_not_made_does_not_count() -> None:
    sums = LongSums()
    assert sums.next_turn(LEAST_LONG_SUM_BYTES) == sums.next_turn(LEAST_LONG_SUM_BYTES)


def test_sums_do_not_wait_where_the_network_is_always_faster() -> None:
    sums = LongSums()
    taken(sums, LEAST_LONG_SUM_BYTES)
    assert taken(sums, LEAST_LONG_SUM_BYTES).path(2, "shared memory") == "network"


def test_paths_of_the_rows() -> None:
    for row in LONG_SUMS_OVER_GLOO:
        for ranks in (row.least_ranks, row.most_ranks):
            assert path_of_long_sum(LEAST_LONG_SUM_BYTES, row.words, ranks, row.medium) == "gloo"
            assert path_of_long_sum(LEAST_LONG_SUM_BYTES - 1, row.words, ranks, row.medium) == "network"
            assert path_of_long_sum(LEAST_LONG_SUM_BYTES, 1, ranks, row.medium) == "network"
            assert path_of_long_sum(1 << 30, 3, ranks, None) == "network"  # nothing is known of the link


# ---- process groups --------------------------------------------------------------------------------------------------


def mixed(rank: int) -> list[bool]:
    """Make sums of several sizes and magnitudes among other collectives; return which of them went over Gloo."""
    assert dist.group.WORLD.link.medium == "shared memory"
    paths = []
    plan = [(63, LEAST)] * 3 + [(10, LEAST), (10, 2 * LEAST), (63, LEAST - 1), (63, 2 * LEAST), (63, LEAST)]
    for call, (bits, elements) in enumerate(plan):
        x = contribution(rank, call, bits, elements)
        paths.append(took_gloo(dist.all_reduce, x))
        require_sum(x, call, bits)
        largest = torch.tensor([float(rank)])
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        assert largest[0] == WORLD_SIZE - 1
        y = torch.full((300,), 1.0)
        dist.all_reduce(y)
        assert y[0] == WORLD_SIZE
    return paths


def test_sums_take_the_path_of_the_look(ranks: Ranks) -> None:
    expected = [False, True, True, True, False, False, False, True]
    assert ranks.run(WORLD_SIZE, mixed) == [expected] * WORLD_SIZE


def overlapping(rank: int) -> int:
    """Make sums that overlap, and wait for them in another pattern on each rank; return how many went over Gloo."""
    calls = CALLS_BETWEEN_LOOKS + 12
    tensors, works = [], []
    for call in range(calls):
        x = contribution(rank, call, 63)
        tensors.append(x)
        works.append(dist.all_reduce(x, async_op=True))
        small = torch.ones(10)
        works.append(dist.all_reduce(small, async_op=True))
        tensors.append(small)
        if (call + rank) % 7 == 0:
            works[call].wait()
    for work in works:
        work.wait()
    for call in range(calls):
        require_sum(tensors[2 * call], call, 63)
        assert tensors[2 * call + 1][0] == WORLD_SIZE
    return switchml.torch.statistics()["long_sums_over_gloo"]


def test_overlapping_sums_choose_alike(ranks: Ranks) -> None:
    assert ranks.run(WORLD_SIZE, overlapping) == [CALLS_BETWEEN_LOOKS + 10] * WORLD_SIZE


def calls_before_a_message(rank: int) -> None:
    """Rank 1 makes its calls only after a message that rank 0 sends after its own calls: these must not block."""
    message = torch.ones(1)
    if rank == 1:
        dist.recv(message, 0)
    tensors = [contribution(rank, call, 63) for call in range(3)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    if rank == 0:
        dist.send(message, 1)
    for call, (work, x) in enumerate(zip(works, tensors, strict=True)):
        work.wait()
        require_sum(x, call, 63)
    assert switchml.torch.statistics()["long_sums_over_gloo"] == 2


def test_a_sum_that_waits_for_its_look_does_not_block_its_caller(ranks: Ranks) -> None:
    ranks.run(WORLD_SIZE, calls_before_a_message)


def groups_made_again(rank: int) -> list[bool]:
    """Make two sums in the default group, in a sub-group, and in a default group that is made again."""
    paths = []
    store = dist.distributed_c10d._get_default_store()
    for group in (None, dist.new_group(range(WORLD_SIZE)), None):
        for call in range(2):
            x = contribution(rank, call, 63)
            paths.append(took_gloo(lambda tensor=x, of=group: dist.all_reduce(tensor, group=of)))
            require_sum(x, call, 63)
        if group is not None:
            dist.destroy_process_group()
            dist.init_process_group("switchml", store=store, rank=rank, world_size=WORLD_SIZE)
    return paths


def test_each_group_looks_for_itself(ranks: Ranks) -> None:
    assert ranks.run(WORLD_SIZE, groups_made_again) == [[False, True] * 3] * WORLD_SIZE


def with_fallback(rank: int) -> None:
    for call in range(3):
        x = contribution(rank, call, 63)
        dist.all_reduce(x)
        require_sum(x, call, 63)
    assert dist.group.WORLD.state == "network"
    assert switchml.torch.statistics()["gloo_calls"] == 0


def test_groups_with_a_fallback_stay_in_the_network(ranks: Ranks) -> None:
    ranks.run(WORLD_SIZE, with_fallback, environment=GLOO)


def one_dies(rank: int) -> tuple[tuple[int, ...], str]:
    """Kill rank 1 before a sum that goes over Gloo."""
    for call in range(2):
        dist.all_reduce(contribution(rank, call, 63))
    assert switchml.torch.statistics()["long_sums_over_gloo"] == 1
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(switchml.torch.SwitchMLBackendError) as raised:
        dist.all_reduce(contribution(rank, 2, 63))
    return raised.value.ranks, raised.value.reason


def test_a_rank_that_dies_is_named(ranks: Ranks) -> None:
    started = ranks.finish(ranks.start(WORLD_SIZE, one_dies))
    for rank in (0, 2, 3):
        assert not started[rank].failure, started[rank].failure
        assert started[rank].result == ((1,), "WorkerLost")
