"""`switchml-ctl bench links`: rows from real links, and nothing left behind, also by a benchmark that was killed."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from switchml.topologies.namespaces import Namespaces
from tests.support.fabric_harness import SCRIPTS, Ctl, Studies, needs_namespaces, runs, wait_until

ONE_TURN = ("--link", "50mbit", "--queue", "400ms", "--workers", "2", "--peers", "", "--repetitions", "1")


def run_directory_of(ctl: Ctl) -> Path:
    return ctl.run_dir.with_name(f"{ctl.run_dir.name}-links")


@pytest.fixture(autouse=True)
def nothing_is_left(ctl: Ctl) -> Iterator[None]:
    interfaces = set(Path("/sys/class/net").iterdir())
    yield
    ctl.run("--run-dir", str(run_directory_of(ctl)), "down")
    assert Namespaces(run_directory_of(ctl)).existing() == []
    assert set(Path("/sys/class/net").iterdir()) == interfaces


@needs_namespaces
def test_every_worker_sends_its_tensor_once(ctl: Ctl) -> None:
    elements = 1 << 19
    result = ctl.json("bench", "links", *ONE_TURN, "--size", "2MiB")
    rows = {(row["element_type"], row["wire_bits"]): row for row in result["rows"]}
    assert set(rows) == {("float32", 32), ("float32", 16), ("float32", 8), ("bfloat16", 16)}
    for (_, wire_bits), row in rows.items():
        size = elements * wire_bits // 8
        assert (row["rate"], row["queue"], row["workers"], row["elements"]) == (50_000_000, 0.4, 2, elements)
        assert row["bound"] == pytest.approx(8 * size / 50e6)
        # The links' counters: the tensor with its packets' headers, the barriers, and what a busy machine sends again.
        assert size <= row["link_bytes"] < 2 * size
        # A token bucket lets its burst pass at once.
        assert row["median"] >= 0.6 * row["bound"]
        assert row["dropped"] < 0.01
        assert row["largest_error"] <= row["allowed_error"]
    assert not run_directory_of(ctl).exists()
    assert not ctl.run_dir.exists()


@needs_namespaces
def test_an_interrupted_benchmark_leaves_nothing(ctl: Ctl) -> None:
    directory = run_directory_of(ctl)
    bench = ctl.start(
        *("bench", "links", *ONE_TURN, "--size", "8MiB", "--iterations", "1000"),
        start_new_session=True,  # Ctrl-C goes to all processes of a terminal's foreground group
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job of a shell ignores it
    )
    wait_until(lambda: (directory / "ranks" / "udp.sock").exists(), "the ranks start")
    inside = [pid for name in Namespaces(directory).existing() for pid in processes_in(name)]
    assert inside
    os.killpg(bench.pid, signal.SIGINT)
    _, said = bench.communicate(timeout=60)
    assert bench.returncode == 128 + signal.SIGINT
    assert "Traceback" not in said
    assert Namespaces(directory).existing() == []
    assert not any(runs(pid) for pid in inside)
    assert not directory.exists()


@needs_namespaces
def test_a_benchmark_that_was_killed_is_cleared_away_by_the_next_one(ctl: Ctl) -> None:
    directory = run_directory_of(ctl)
    bench = ctl.start("bench", "links", *ONE_TURN, "--size", "8MiB", "--iterations", "1000")
    try:
        wait_until(lambda: (directory / "ranks" / "udp.sock").exists(), "the ranks start")
        assert "another `switchml-ctl bench` uses" in ctl.run("bench", "links", *ONE_TURN, status=1).stderr
    finally:
        bench.send_signal(signal.SIGKILL)
        bench.communicate()
    namespaces = Namespaces(directory).existing()
    assert len(namespaces) == 3
    inside = [pid for name in namespaces for pid in processes_in(name)]
    assert inside
    ctl.run("bench", "links", *ONE_TURN, "--size", "4KiB")
    wait_until(lambda: not any(runs(pid) for pid in inside), "its processes have ended")
    assert Namespaces(directory).existing() == []
    assert not directory.exists()


def processes_in(namespace: str) -> list[int]:
    inode = (Path("/var/run/netns") / namespace).stat().st_ino
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if (entry / "ns" / "net").stat().st_ino == inode:
                    found.append(int(entry.name))
            except OSError:  # it has ended
                continue
    return found


@needs_namespaces
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="skipped: setpriv not found")
def test_without_privileges_the_message_says_what_is_missing(ctl: Ctl) -> None:
    command = ["setpriv", "--bounding-set", "-net_admin", str(SCRIPTS / "switchml-ctl"), "bench", "links", *ONE_TURN]
    refused = subprocess.run(command, capture_output=True, text=True, env=ctl.environment, timeout=60)
    assert refused.returncode == 1
    assert "need CAP_NET_ADMIN" in refused.stderr
    assert "run it as root" in refused.stderr
    assert not run_directory_of(ctl).exists()


@needs_namespaces
def test_a_switch_on_each_host_sends_once_for_all_its_ranks(ctl: Ctl) -> None:
    result = Studies(ctl.run_dir).json(
        *("leaves", "--link", "500mbit", "--ranks", "3", "--size", "1MiB", "--repetitions", "1"),
        *("--small-iterations", "10", "--torch-python", "/nowhere/python"),
    )
    rows = {(row["system"], row["bytes"]): row for row in result["rows"]}
    assert set(rows) == {(system, size) for system in ("leaf", "udp") for size in (1 << 20, 4096)}
    assert 1 << 20 <= rows["leaf", 1 << 20]["link_bytes"] < 2 << 20
    assert 3 << 20 <= rows["udp", 1 << 20]["link_bytes"] < 6 << 20
    assert set(result["missing"]) == {"gloo"}
    assert not run_directory_of(ctl).exists()


@needs_namespaces
def test_an_urgent_call_does_not_wait_for_a_large_one(ctl: Ctl, limit: Callable[[float], float]) -> None:
    size, rate = 16 << 20, 100_000_000
    one_turn = ("--link", "100mbit", "--workers", "2", "--repetitions", "1", "--size", "16MiB")
    links, memory = Studies(ctl.run_dir).json("urgent", *one_turn, "--urgent", "256KiB")["rows"]
    assert (links["system"], links["rate"], links["workers"], links["calls"]) == ("udp", rate, 2, 1)
    assert (memory["system"], memory["rate"]) == ("shm", 0)
    assert links["bound"] == pytest.approx(8 * (256 << 10) / rate)
    assert links["ratio"] == pytest.approx(links["behind"] / links["alone"])
    # The large call takes longer than its size at the link's rate, of which the urgent one saw little. Over shared
    # memory the large one may end first.
    assert links["ended_first"] == 0
    assert 0.6 * links["bound"] < links["behind"] < limit(0.25 * (8 * size / rate))


def test_parameter_servers_take_what_their_formulas_say(ctl: Ctl) -> None:
    """Test what the links carry; a busy machine may add to the times."""
    workers, size = 2, 1 << 20
    studies = Studies(ctl.run_dir)
    result = studies.json(
        *("phub", "--link", "50mbit", "--queue", "400ms", "--workers", "2", "--size", "1MiB"),
        *("--modes", "ps1,psN,ring,switch,switch16", "--repetitions", "1", "--torch-python", "/nowhere/python"),
    )
    rows = {row["mode"]: row for row in result["rows"]}
    assert list(rows) == ["ps1", "psN", "switch", "switch16"]
    for mode, carried in (("ps1", workers), ("psN", 2 * (workers - 1) / workers), ("switch", 1), ("switch16", 0.5)):
        row = rows[mode]
        assert row["formula"] == pytest.approx(carried * 8 * size / 50e6)
        assert carried * size <= row["link_bytes"] < 1.6 * carried * size
        assert row["median"] >= 0.6 * row["formula"]  # a token bucket lets its burst pass at once
        assert row["same_bits"] is (None if mode == "switch16" else True)
        assert row["largest_error"] <= row["allowed_error"]
    assert rows["ps1"]["load"] == 1
    assert rows["psN"]["load"] <= 1.02
    assert set(result["missing"]) == {"ring"}
    assert not run_directory_of(ctl).exists()
    refused = studies.run("phub", "--modes", "ps1,ps2", status=2).stderr
    assert "'ps2' is not one of ps1, psN, ring, switch, switch16" in refused
