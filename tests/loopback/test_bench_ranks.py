"""Groups of a benchmark's ranks: a rank that fails is named, and nothing is left behind."""

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchml.benchmarks import open_mpi
from switchml.benchmarks.errors import BenchmarkError, MissingPeer, RankFailed
from switchml.benchmarks.ranks import Launcher, RankGroup, rank_group, start
from switchml.benchmarks.record import Record
from switchml.benchmarks.systems import Peer, work_directory
from switchml.benchmarks.turns import Task, Turns

RANK = """
import json, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
stream = connection.makefile("rw")
def say(content): stream.write(json.dumps(content) + chr(10)); stream.flush()
say({"rank": int(sys.argv[2])})
for line in stream:
"""


def launcher(*bodies: str) -> Launcher:
    """Start a process for each rank; its body handles lines of commands."""

    def launch(address: Path, log: Path) -> list[subprocess.Popen[bytes]]:
        return [
            start([sys.executable, "-c", RANK + f"    {body}", str(address), str(rank)], log, {})
            for rank, body in enumerate(bodies)
        ]

    return launch


ECHO = "break if line == 'end\\n' else say({'said': line.strip(), 'rank': int(sys.argv[2])})".replace(
    "break if", "sys.exit(0) if"
)


def test_answers_come_by_rank_and_a_group_ends_in_order(tmp_path: Path) -> None:
    with rank_group("echo", 3, tmp_path, launcher(ECHO, ECHO, ECHO)) as group:
        for line in ("all_reduce 1 2 3", "another"):
            answers = group.command(line)
            assert answers == [{"said": line, "rank": rank} for rank in range(3)]
    assert not list(tmp_path.glob("*.sock"))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("say({'error': 'wrong sum'})", "rank 1, `work`: wrong sum"),
        ("print('last words', flush=True); sys.exit(3)", "rank 1 closed its connection during `work`"),
        ("pass", "ranks 1 did not answer `work` in time"),
    ],
)
def test_a_rank_that_fails_is_named(body: str, words: str, tmp_path: Path) -> None:
    began = time.monotonic()
    processes: list[subprocess.Popen[bytes]] = []

    def launch(address: Path, log: Path) -> list[subprocess.Popen[bytes]]:
        processes.extend(launcher(ECHO, body)(address, log))
        return processes

    with (
        pytest.raises(RankFailed, match=words) as failure,
        rank_group("g", 2, tmp_path, launch) as group,
    ):
        group.command("work", 6.0 if body == "pass" else 60.0)
    assert time.monotonic() - began < 30
    assert ("last words" in str(failure.value)) == ("last words" in body)
    assert all(process.poll() is not None for process in processes)


def test_a_process_that_ends_before_it_has_joined_is_named(tmp_path: Path) -> None:
    def launch(_address: Path, log: Path) -> list[subprocess.Popen[bytes]]:
        return [start([sys.executable, "-c", "print('no numpy'); raise SystemExit(7)"], log, {})]

    with (
        pytest.raises(RankFailed, match="ended with status 7 before it joined") as failure,
        rank_group("g", 1, tmp_path, launch),
    ):
        pass
    assert "no numpy" in str(failure.value)


def test_a_long_temporary_directory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("long-" * 20)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with pytest.raises(BenchmarkError, match=r"too long for a Unix socket; set TMPDIR"), work_directory():
        pass


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match="/no/such/program cannot be started"):
        start(["/no/such/program"], tmp_path / "log", {})


@pytest.mark.parametrize("name", list(open_mpi.TRANSPORTS))
def test_ranks_of_open_mpi_sum_the_same_pattern(name: str) -> None:
    try:
        peer = Peer.find(name, sys.executable)
    except MissingPeer as error:
        pytest.skip(str(error))
    with work_directory() as directory, peer.group(2, directory) as group:
        assert isinstance(group, RankGroup)
        for command in ("all_reduce 2 1 1000010", "queue 2 1 1024 10"):
            for answer in group.command(command):
                assert len(answer["seconds"]) == 2
                assert answer["cpu_seconds"] > 0
                assert 0 <= answer["largest_error"] <= answer["allowed_error"] < 1e-6


def test_a_peer_that_fails_takes_no_further_turns_and_ours_end_the_benchmark(tmp_path: Path) -> None:
    result = "'seconds': [0.5], 'cpu_seconds': 1, 'wake_ups': 1, 'preemptions': 0, 'largest_error': 0"
    good = f"sys.exit(0) if line == 'end\\n' else say({{{result}, 'allowed_error': 1}})"

    class Scripted(Peer):
        """A peer whose ranks behave as its description says."""

        @contextlib.contextmanager
        def group(self, workers: int, directory: Path) -> Iterator[RankGroup]:
            with rank_group(self.name, workers, directory, launcher(*[self.description] * workers)) as group:
                yield group

    said: list[str] = []
    steady = Scripted("steady", good, "")
    broken = Scripted("broken", "say({'error': 'wrong sum'})", "")
    record = Record(said.append)
    Turns([broken, steady], tmp_path, record).run(2, [Task(4, 1, 1)], 3)
    assert [turn.system for turn in record.samples] == ["steady"] * 3
    assert record.missing.keys() == {"broken"}
    assert re.fullmatch(r"failed: broken: rank [01], `all_reduce 1 1 1`: wrong sum\.", record.missing["broken"])
    assert any("takes no further turns" in line for line in said)
    with pytest.raises(RankFailed, match="wrong sum"):
        Turns([broken], tmp_path, Record(said.append)).run(2, [Task(4, 1, 1)], 1)
