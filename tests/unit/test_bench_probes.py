"""The benchmark's probes of the CPU (kernels and cache lines), and the report of missing peers."""

from pathlib import Path

import pytest

from switchml._native import kernels
from switchml.benchmarks import _probes, gloo, kernel_loop, machine_state, open_mpi
from switchml.benchmarks.errors import MissingPeer
from switchml.dataplane.constants import PROTOCOL_MAX_VALUES


def test_every_kernel_of_the_library_is_timed_with_all_instructions() -> None:
    offered = {name for name, value in vars(kernels).items() if callable(value) and not isinstance(value, type)}
    timed = {(name.split()[0], instructions) for name, instructions, _ in kernel_loop.passes(PROTOCOL_MAX_VALUES)}
    here = {each.name.lower() for each in kernels.Instructions if kernels.cpu_has(each)}
    names = offered - {"best_instructions", "cpu_has", "use_instructions", "run"}
    names -= {"levels_for", "all_within", "weights"}
    names |= {"bits_of_largest", "pack_limb", "join_limbs"}
    assert timed >= {(name, instructions) for name in names for instructions in here}
    assert timed >= {(name, instructions) for name in ("add", "sum") for instructions in here}


def test_kernels_run_over_as_much_as_they_are_asked_to() -> None:
    for _, _, run in kernel_loop.passes(3 * PROTOCOL_MAX_VALUES):
        for elements in (0, PROTOCOL_MAX_VALUES, 3 * PROTOCOL_MAX_VALUES):
            run(elements)


def test_a_cache_line_goes_to_another_processor_and_back() -> None:
    first, second = _probes.two_cpus()
    if first < 0:
        pytest.skip("one CPU only")
    trips = _probes.cache_line_round_trips(first, second, 5, 1.0)
    assert trips == sorted(trips)
    assert 1e-8 < trips[0] <= 1.0
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
