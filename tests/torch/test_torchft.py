"""torchft over SwitchML: replicas that die and return, and outer steps in 8-bit lanes."""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.fabric_harness import Ctl
from tests.torch.test_digits import example
from tests.torch.torch_harness import RendezvousServer

coordination = pytest.importorskip("torchft.coordination", reason="torchft is not installed here")

from switchml.torchft import ProcessGroupSwitchML  # noqa: E402

STEPS = 250
PAUSE_SECONDS = 0.05  # after each step while replicas come and go, so that the training does not end before
SECONDS = 150  # on a busy machine


@pytest.fixture
def lighthouse(request: pytest.FixtureRequest) -> Iterator[str]:
    """Provide the address of a lighthouse that notices the end of a replica after half a second.

    The parameter is the least number of replicas, by default 1.
    """
    server = coordination.LighthouseServer(
        bind="[::]:0",
        min_replicas=getattr(request, "param", 1),
        join_timeout_ms=200,
        quorum_tick_ms=20,
        heartbeat_timeout_ms=500,
    )
    try:
        yield server.address()
    finally:
        server.shutdown()


class Replica:
    """A process of one replica, and what it has told so far."""

    def __init__(self, server: RendezvousServer, run: Callable[..., None], *arguments: Any) -> None:
        self.told, theirs = server.context.Pipe()
        self.process = server.context.Process(target=run, args=(theirs, *arguments), daemon=True)
        self.process.start()
        theirs.close()
        self.steps: list[tuple[int, int, float]] = []
        self.result: Any = None

    def read(self) -> None:
        """Read one message."""
        message = self.told.recv()
        if isinstance(message, tuple):
            self.steps.append(message)
        else:
            self.result = message


def read_until(replicas: Sequence[Replica], condition: Callable[[Replica], bool]) -> None:
    """Read what all replicas tell, until the condition holds for each. So none waits for room in its connection."""
    end = time.monotonic() + SECONDS
    while not all(map(condition, replicas)):
        told = wait([replica.told for replica in replicas], max(0, end - time.monotonic()))
        assert told, f"nothing more after {[replica.steps[-1:] for replica in replicas]}"
        for replica in replicas:
            if replica.told in told and not condition(replica):
                replica.read()


def trains(results: Connection, replica: int, run_dir: Path, lighthouse: str, steps: int = STEPS) -> None:
    os.environ |= {"OMP_NUM_THREADS": "1", "SWITCHML_RUN_DIR": str(run_dir)}

    def tell(*step: float) -> None:
        results.send(step)
        results.poll(PAUSE_SECONDS)  # no pause any more once the test has sent anything

    results.send(example("torchft_ddp").train(replica, steps, tell, lighthouse))


@pytest.mark.long
def test_replicas_die_and_return_while_the_others_go_on(server: RendezvousServer, fabric: Ctl, lighthouse: str) -> None:
    arguments = (fabric.run_dir, lighthouse)
    replicas = [Replica(server, trains, number, *arguments) for number in range(3)]
    read_until(replicas, lambda it: bool(it.steps) and it.steps[-1][1] == 3)
    begin = max(replica.steps[-1][0] for replica in replicas)
    replicas[1].process.kill()
    read_until([replicas[0], replicas[2]], lambda it: it.steps[-1][1] == 2)
    replicas[1] = Replica(server, trains, 1, *arguments)
    read_until(replicas, lambda it: bool(it.steps) and it.steps[-1][1] == 3)
    for replica in replicas:
        replica.told.send("go on without pauses")
    read_until(replicas, lambda it: it.result is not None)
    assert replicas[0].result == replicas[1].result == replicas[2].result
    for survivor in (replicas[0], replicas[2]):
        assert max(seconds for step, _, seconds in survivor.steps if step > begin) < 2


def test_no_replica_trains_before_the_second_has_come(server: RendezvousServer, fabric: Ctl, lighthouse: str) -> None:
    steps = 10
    first = Replica(server, trains, 0, fabric.run_dir, lighthouse, steps)
    read_until([first], lambda it: len(it.steps) == 5)
    assert {(step, replicas) for step, replicas, _ in first.steps} == {(0, 1)}
    both = [first, Replica(server, trains, 1, fabric.run_dir, lighthouse, steps)]
    read_until(both, lambda it: it.result is not None)
    assert both[0].result == both[1].result


def averages(results: Connection, replica: int, run_dir: Path, lighthouse: str, options: argparse.Namespace) -> None:
    os.environ |= {"OMP_NUM_THREADS": "1", "SWITCHML_RUN_DIR": str(run_dir)}
    torch.manual_seed(0)
    model = example("characters").Predictor()
    result = example("torch_diloco").train(replica, options, lighthouse, model)
    results.send(result | {"last_layer": model.layers[-1].weight.detach().numpy().tobytes()})


def trained_with_outer_steps(
    server: RendezvousServer, fabric: Ctl, lighthouse: str, wire: int, outer: int, inner: int, delay: int = 0
) -> list[dict[str, Any]]:
    """Return the results of two replicas."""
    options = argparse.Namespace(replicas=2, outer=outer, inner=inner, wire=wire, delay=delay)
    replicas = [Replica(server, averages, number, fabric.run_dir, lighthouse, options) for number in range(2)]
    read_until(replicas, lambda it: it.result is not None)
    return [replica.result for replica in replicas]


@pytest.mark.parametrize("lighthouse", [2], indirect=True, ids=["both"])
@pytest.mark.parametrize(
    ("outer", "inner", "within"), [(4, 25, 0.05), pytest.param(20, 50, 0.01, marks=pytest.mark.long)]
)
def test_outer_steps_in_8_bits_are_as_good_and_cost_a_quarter(
    server: RendezvousServer, fabric: Ctl, lighthouse: str, outer: int, inner: int, within: float
) -> None:
    both = [trained_with_outer_steps(server, fabric, lighthouse, wire, outer, inner) for wire in (32, 8)]
    assert all(first == second for first, second in both)
    wide, narrow = (results[0] for results in both)
    assert wide["outer_steps"] == narrow["outer_steps"] == outer
    assert abs(narrow["loss"] / wide["loss"] - 1) < within
    assert narrow["loss"] < 4  # of 4.85 without any training
    assert narrow["bytes"] * inner * 4 == pytest.approx(narrow["bytes_of_ddp"], rel=0.01)
    assert wide["bytes"] * inner == pytest.approx(wide["bytes_of_ddp"], rel=0.01)


@pytest.mark.parametrize("lighthouse", [2], indirect=True, ids=["both"])
def test_halves_of_a_model_are_averaged_in_8_bits_during_inner_steps(
    server: RendezvousServer, fabric: Ctl, lighthouse: str
) -> None:
    outer, inner = 4, 24
    first, second = trained_with_outer_steps(server, fabric, lighthouse, 8, outer, inner, delay=6)
    # The half with the last layer has just been averaged, the other one differs since its own last average.
    assert first["last_layer"] == second["last_layer"]
    assert first["loss"] != second["loss"]
    for result in (first, second):
        assert result["outer_steps"] == 2 * outer
        assert result["loss"] < 4  # of 4.85 without any training
        assert result["bytes"] * inner * 4 == pytest.approx(result["bytes_of_ddp"], rel=0.01)


def test_the_lines_of_the_documentation_make_a_group() -> None:
    page = Path(__file__).parents[2] / "docs" / "guides" / "pytorch-libraries.md"
    found = re.search(r"<!-- library: torchft -->\n.*?```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    names: dict[str, Any] = {}
    exec(found[1], names)
    assert isinstance(names["group"], ProcessGroupSwitchML)
    assert names["group"].errored() is None


def test_a_timeout_must_be_positive() -> None:
    with pytest.raises(ValueError, match="it must be positive"):
        ProcessGroupSwitchML(timedelta(0))
