"""What a benchmark asks the processor: kernels and cache lines; and how a peer that is missing is named."""

import importlib
from pathlib import Path

import pytest

from benchmarks import _probes, gloo, machine_state, open_mpi
from benchmarks.errors import MissingPeer

kernels = importlib.import_module("switchml._native").kernels


def test_every_kernel_of_the_library_is_timed() -> None:
    offered = {name for name, value in vars(kernels).items() if callable(value) and not isinstance(value, type)}
    choosing = {"best_instructions", "use_instructions"}
    timed = {name for name, _ in _probes.kernel_names()}
    assert offered - choosing <= timed, "benchmarks/native/kernel_speed.cc lacks a row for a kernel"


@pytest.mark.parametrize("name", [name for name, _ in _probes.kernel_names()])
def test_a_kernel_is_timed_over_whole_passes(name: str) -> None:
    times = _probes.time_kernel(name, kernels.best_instructions().value, 1 << 16, 0.001)
    assert len(times) >= 3
    assert all(0 < seconds < 0.1 for seconds in times)


def test_what_cannot_be_timed_is_refused() -> None:
    best = kernels.best_instructions().value
    for name, instructions, size in (("none", best, 1 << 16), ("quantize", 99, 1 << 16), ("quantize", best, 4096)):
        with pytest.raises(ValueError, match=r"."):
            _probes.time_kernel(name, instructions, size, 0.001)


def test_a_cache_line_goes_to_another_processor_and_back() -> None:
    first, second = _probes.two_processors()
    if first < 0:
        pytest.skip("one processor only")
    trips = _probes.cache_line_round_trips(first, second, 5, 1.0)
    assert trips == sorted(trips)
    assert 1e-8 < trips[0] < 1e-3
    assert _probes.cache_line_round_trips(first, 1023, 5, 1.0) == []


def test_the_state_of_this_machine() -> None:
    machine = machine_state.look()
    assert machine.processors >= 1
    assert machine.memory_bytes > 1 << 28
    assert 1e8 < machine.memory_bytes_per_second < 1e13
    assert machine.autogroup in ("enabled", "disabled", "absent")
    state = machine_state.now()
    assert (state.cache_line_ns is None) == (machine.processors == 1)


def test_a_missing_peer_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingPeer, match=r"cannot be run .*--torch-python"):
        gloo.version("/no/such/python")
    with pytest.raises(MissingPeer, match=r"cannot use torch .*--torch-python"):
        gloo.version("/bin/false")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingPeer, match="mpirun not found on PATH: install openmpi-bin libopenmpi-dev"):
        open_mpi.command("mpi-shm", 2, Path("socket"))
