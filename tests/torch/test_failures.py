"""Ranks that die and switches that are missing or lost: errors that name them, or Gloo."""

import hashlib
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import switchml
import switchml.torch
from switchml.torch import leaving
from switchml.torch.deadlines import Deadline
from switchml.torch.leaving import RanksMissing, Stall, Standing, agree_to_leave
from tests.support.fabric_harness import Ctl
from tests.torch.torch_harness import Ranks, RendezvousServer

GLOO = {"SWITCHML_TORCH_FALLBACK": "gloo"}
EXACT = {"SWITCHML_TORCH_FALLBACK": "gloo-exact"}
NARROW = {"SWITCHML_TORCH_WIRE": "blocks:bits=8,rounding=stochastic"}


def pid_of(control: Ctl, role: str) -> int:
    [found] = [process["pid"] for process in control.processes() if process["name"].startswith(role)]
    return int(found)


class Lines(logging.Handler):
    """Collects the backend's log records in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        logging.getLogger("switchml.torch").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def calls_until_failure(rank: int, way: str, calls: list[float]) -> None:
    """Make one call after the other, on rank 1 only six; `calls` gets the start time of each."""
    x = torch.ones(500_000)
    while True:
        calls.append(time.monotonic())
        work = dist.all_reduce(x, dist.ReduceOp.AVG, async_op=True)
        if rank == 1 and len(calls) == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        if way == "wait":
            work.wait()
        else:
            work.get_future().wait()


def one_dies(rank: int, way: str) -> tuple[float, float, tuple[int, ...], str]:
    """Kill rank 1 in the middle; return how long another rank's last call and the next one take, and their errors."""
    calls: list[float] = []
    # A future does not preserve the type.
    with pytest.raises(dist.DistBackendError if way == "wait" else RuntimeError) as raised:
        calls_until_failure(rank, way, calls)
    seconds = time.monotonic() - calls[-1]
    assert len(calls) in (6, 7)  # rank 1 may have contributed to its sixth before it dies
    again = time.monotonic()
    with pytest.raises(switchml.torch.SwitchMLBackendError) as later:
        dist.all_reduce(torch.ones(1))
    return seconds, time.monotonic() - again, later.value.ranks, str(raised.value)


@pytest.mark.parametrize(("way", "environment"), [("wait", {}), ("future", {}), ("wait", GLOO)])
def test_a_killed_rank_is_named_within_two_seconds(
    ranks: Ranks, way: str, environment: dict[str, str], figure: Callable[[str], None], limit: Callable[[float], float]
) -> None:
    started = ranks.finish(ranks.start(3, one_dies, way, environment=environment))
    assert started[1].failure == "the process ended without a word"
    for rank in (0, 2):
        assert not started[rank].failure, started[rank].failure
        seconds, of_next, named, message = started[rank].result
        figure(f"rank 1 is killed: rank {rank} is told after {seconds:.2f} s")
        assert seconds < limit(2)
        assert of_next < limit(0.5)
        assert named == (1,)
        assert "rank 1" in message
        assert "WorkerLost" in message or "lost" in message


def no_switch(rank: int) -> None:
    """Check that everything works over Gloo."""
    assert dist.group.WORLD.state.startswith("gloo:")
    x = torch.ones(1000, dtype=torch.bfloat16)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert x[0] == 1
    group = dist.new_group([0, 1])
    x = torch.ones(10)
    works = [dist.all_reduce(x, group=group, async_op=True), dist.barrier(group=group, async_op=True)]
    assert all(work.wait() for work in works)
    assert x[0] == 2
    assert switchml.torch.statistics()["network_calls"] == 0
    assert switchml.torch.statistics()["gloo_groups"] >= 1


def test_no_switch_at_the_start_with_a_fallback(server: RendezvousServer) -> None:
    Ranks(server, None).run(2, no_switch, environment=GLOO)


def test_no_switch_at_the_start_without_one(server: RendezvousServer) -> None:
    ranks = Ranks(server, None)
    for rank in ranks.finish(ranks.start(2, no_switch)):
        assert "SwitchMLBackendError" in rank.failure
        assert "rank 0, 1: no agent answers at /nonexistent/agent.sock" in rank.failure
        assert "switchml-ctl up" in rank.failure


def gradients(rank: int, step: int, size: int) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(100 * step + rank))


def sparse_gradients(rank: int, step: int) -> torch.Tensor:
    """Return a row that only this rank has, and one that all have."""
    return torch.sparse_coo_tensor([[rank, 10 + step]], gradients(rank, step, 6).view(2, 3), (40, 3))


def goes_on(
    rank: int, world_size: int, steps: int, pid: int, number: int
) -> tuple[str, list[str], str, dict[str, int]]:
    """Train while a process of the fabric gets the signal `number`; every sum is checked."""
    lines = Lines()
    parameters = torch.zeros(200_003)
    half = torch.zeros(1000)
    sparse = torch.zeros(40, 3)
    for step in range(steps):
        if rank == 0 and step == steps // 2:
            os.kill(pid, number)
        pieces = list(gradients(rank, step, 200_003).split(50_000))
        works = [dist.all_reduce(piece, dist.ReduceOp.AVG, async_op=True) for piece in pieces]
        small = gradients(rank, step, 1000).to(torch.bfloat16)
        count = torch.tensor([step], dtype=torch.int64)
        double = gradients(rank, step, 77).double()
        works.append(dist.all_reduce(small, async_op=True))
        works.append(dist.all_reduce(count, async_op=True))
        works.append(dist.all_reduce(double, async_op=True))
        dist.broadcast(half, step % world_size)
        own, gathered = torch.zeros(700), torch.zeros(world_size * 900)
        parts = gradients(rank, step, world_size * 700)
        works.append(dist.reduce_scatter_single(own, parts, async_op=True))
        works.append(dist.all_gather_single(gathered, gradients(rank, step, 900), async_op=True))
        rows = sparse_gradients(rank, step)
        works.append(dist.all_reduce(rows, async_op=True))
        for work in works:
            assert work.wait()
        assert count[0] == step * world_size
        every = [gradients(r, step, 200_003) for r in range(world_size)]
        result = torch.cat(pieces)
        # The error of stochastic rounding is below M/Q, where M is at most twice the largest magnitude.
        levels = (2 ** (switchml.torch.wire_bits(torch.float32, world_size) - 1) - 1) // world_size
        atol = max(1e-5, float(2 * torch.stack(every).abs().max()) / levels)
        assert torch.allclose(result, sum(every) / world_size, atol=atol)
        parameters -= result
        half += small.float()
        assert torch.allclose(double, sum(gradients(r, step, 77).double() for r in range(world_size)), atol=1e-12)
        exact = sum(gradients(r, step, world_size * 700) for r in range(world_size))
        assert torch.allclose(own, exact.split(700)[rank], atol=world_size * atol)
        assert torch.equal(gathered, torch.cat([gradients(r, step, 900) for r in range(world_size)]))
        table = sum(sparse_gradients(r, step).to_dense() for r in range(world_size))
        assert torch.allclose(rows.to_dense(), table, atol=world_size * atol)
        sparse += rows.to_dense()
        dist.barrier()
    digest = hashlib.sha256(b"".join(state.numpy().tobytes() for state in (parameters, half, sparse))).hexdigest()
    return dist.group.WORLD.state, lines.lines, digest, switchml.torch.statistics()


@pytest.mark.parametrize("role", ["switch", "agent"])
@pytest.mark.parametrize("lanes", [{}, NARROW], ids=["wide", "narrow"])
def test_training_goes_on_over_gloo_when_the_switch_or_the_agent_is_killed(
    server: RendezvousServer, own_fabric: Ctl, role: str, lanes: dict[str, str]
) -> None:
    pid = pid_of(own_fabric, role)
    results = Ranks(server, own_fabric.run_dir).run(3, goes_on, 3, 12, pid, signal.SIGKILL, environment=GLOO | lanes)
    for state, _, digest, counters in results:
        assert state.startswith("gloo: ")
        assert digest == results[0][2]
        assert counters["fallbacks"] == 1
        assert counters["gloo_calls"] > 0
        assert counters["network_calls"] > 0
    [line] = results[0][1]
    assert "lost the network and continues over Gloo" in line
    assert all(lines == [] for _, lines, _, _ in results[1:])


@pytest.mark.parametrize("role", ["switch", "agent"])
@pytest.mark.parametrize("lanes", [{}, NARROW], ids=["wide", "narrow"])
def test_an_exact_fallback_gives_the_bits_of_a_training_that_was_not_disturbed(
    server: RendezvousServer, own_fabric: Ctl, role: str, lanes: dict[str, str]
) -> None:
    ranks = Ranks(server, own_fabric.run_dir)
    pid = pid_of(own_fabric, role)
    no_signal = 0
    undisturbed, disturbed = (
        ranks.run(3, goes_on, 3, 12, pid, number, environment=EXACT | lanes) for number in (no_signal, signal.SIGKILL)
    )
    assert all(state == "network" for state, *_ in undisturbed)
    assert all(state.startswith("gloo-exact: ") for state, *_ in disturbed)
    assert all(counters["gloo_calls"] > 0 for *_, counters in disturbed)
    assert len({digest for _, _, digest, _ in (*undisturbed, *disturbed)}) == 1


def test_without_a_fallback_the_loss_of_the_agent_is_an_error(server: RendezvousServer, own_fabric: Ctl) -> None:
    ranks = Ranks(server, own_fabric.run_dir)
    pid = pid_of(own_fabric, "agent")
    for rank in ranks.finish(ranks.start(2, goes_on, 2, 6, pid, signal.SIGKILL)):
        assert "SwitchMLBackendError" in rank.failure
        assert "agent" in rank.failure


def mismatched(rank: int, what: str) -> str:
    op = dist.ReduceOp.AVG if what == "op" and rank else dist.ReduceOp.SUM
    with pytest.raises(switchml.torch.SwitchMLBackendError) as raised:
        dist.all_reduce(torch.ones(301 if what == "size" and rank else 300), op)
    return raised.value.reason


@pytest.mark.parametrize("what", ["size", "op"])
@pytest.mark.parametrize("environment", [{}, GLOO])
def test_calls_that_do_not_fit_are_no_reason_to_fall_back(ranks: Ranks, environment: dict[str, str], what: str) -> None:
    assert ranks.run(2, mismatched, what, environment=environment) == ["CollectiveMismatch"] * 2


# ---- the agreement, over a real store and with threads ---------------------------------------------------------------


def agreed(
    store: dist.Store, size: int, present: list[int], suspects: dict[int, list[int]], seconds: float = 60
) -> dict[int, object]:
    outcomes: dict[int, object] = {}

    def run(rank: int) -> None:
        try:
            outcomes[rank] = agree_to_leave(
                store.clone(),
                rank,
                size,
                Standing(rank + 5, f"reason {rank}"),
                suspects.get(rank, []),
                Deadline.after(timedelta(seconds=seconds)),
            )
        except RanksMissing as missing:
            outcomes[rank] = missing.ranks

    threads = [threading.Thread(target=run, args=(rank,)) for rank in present]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return outcomes


def store(tmp_path: Path) -> dist.Store:
    return dist.PrefixStore("test/", dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))


def test_all_learn_where_all_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "_LOST_SECONDS", 30.0)  # a suspect has time to show itself
    outcomes = agreed(store(tmp_path), 3, [0, 1, 2], {0: [1]})
    expected = [Standing(rank + 5, f"reason {rank}") for rank in range(3)]
    assert outcomes == dict.fromkeys(range(3), expected)


def test_all_give_up_when_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test that all ranks give up when only rank 0 suspects rank 2; the others would wait longer than this test."""
    monkeypatch.setattr(leaving, "_SILENT_SECONDS", 90.0)
    assert agreed(store(tmp_path), 3, [0, 1], {0: [2]}) == {0: (2,), 1: (2,)}


def test_the_agreement_ends_at_the_deadline_of_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "_SILENT_SECONDS", 90.0)
    assert agreed(store(tmp_path), 3, [0, 1], {}, 0.5) == {0: (2,), 1: (2,)}


def test_a_late_rank_obeys_the_verdict(tmp_path: Path) -> None:
    common = store(tmp_path)
    common.set("verdict", json.dumps([1]))
    assert agreed(common, 2, [0, 1], {}) == {0: (1,), 1: (1,)}


def test_a_switch_is_gone_only_when_all_stand_still(tmp_path: Path) -> None:
    common = store(tmp_path)
    first, second = Stall(common, 2), Stall(common, 2)
    assert not first.all_stand_still()
    assert not first.all_stand_still()
    first.moved()
    assert not second.all_stand_still()
    assert first.all_stand_still()
    assert second.all_stand_still()
