"""The launcher, with plain commands instead of workers."""

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from switchml.common.errors import CommandNotExecutableError, CommandNotFoundError
from switchml.launch import launcher
from switchml.launch.launcher import Consequence, Launch, LaunchObserver, check_command, run_workers


class Seen(LaunchObserver):
    def __init__(self, decision: Future[Consequence] | None = None) -> None:
        self._decision = decision
        self.lines: list[tuple[int, bytes]] = []
        self.ends: list[tuple[int, int]] = []
        self.interrupts: list[int] = []
        self.on_line: Callable[[], None] = lambda: None

    def output(self, rank: int, line: bytes) -> None:
        self.lines.append((rank, line))
        self.on_line()

    def ended(self, rank: int, exit_code: int) -> None:
        self.ends.append((rank, exit_code))

    def interrupted(self, number: int) -> None:
        self.interrupts.append(number)

    def failed(self, rank: int, exit_code: int) -> Future[Consequence] | None:
        return self._decision


def run(script: str, workers: int, logs: Path, seen: Seen | None = None) -> Launch:
    environments = [{**os.environ, "RANK": str(rank)} for rank in range(workers)]
    return run_workers(["sh", "-c", script], environments, logs, seen or Seen())


def test_output_goes_to_a_log_per_rank_and_line_by_line_to_the_caller(tmp_path: Path) -> None:
    seen = Seen()
    launch = run('echo "out $RANK"; echo "err $RANK" >&2; printf "no newline"', 3, tmp_path, seen)
    assert launch == Launch((0, 0, 0), (), None)
    for rank in range(3):
        assert (tmp_path / f"rank-{rank}.log").read_text() == f"out {rank}\nerr {rank}\nno newline"
        ours = [line for number, line in seen.lines if number == rank]
        assert ours == [b"out %d" % rank, b"err %d" % rank, b"no newline"]
    assert sorted(seen.ends) == [(0, 0), (1, 0), (2, 0)]


def test_much_output_is_complete(tmp_path: Path) -> None:
    seen = Seen()
    run("seq 200000", 2, tmp_path, seen)
    expected = b"".join(b"%d\n" % number for number in range(1, 200001))
    for rank in range(2):
        assert (tmp_path / f"rank-{rank}.log").read_bytes() == expected
        assert b"\n".join(line for number, line in seen.lines if number == rank) + b"\n" == expected


def test_a_full_disk_ends_no_worker(tmp_path: Path) -> None:
    (tmp_path / "rank-1.log").symlink_to("/dev/full")
    seen = Seen()
    launch = run("echo one; sleep 0.1; echo two", 2, tmp_path, seen)
    assert launch == Launch((0, 0), (), None)
    assert (tmp_path / "rank-0.log").read_text() == "one\ntwo\n"
    missing = f"switchml-ctl: output is missing in {tmp_path}/rank-1.log: No space left on device".encode()
    assert [line for rank, line in seen.lines if rank == 1] == [missing, b"one", b"two"]


def test_a_line_without_end_does_not_pile_up(tmp_path: Path) -> None:
    seen = Seen()
    run("head -c 300000 /dev/zero", 1, tmp_path, seen)
    assert sum(len(line) for _, line in seen.lines) == 300000
    assert max(len(line) for _, line in seen.lines) < 200000


def test_the_first_failure_counts_and_ends_the_others(tmp_path: Path) -> None:
    seen = Seen()
    began = time.monotonic()
    launch = run('[ "$RANK" = 1 ] && exit 7; exec sleep 60', 3, tmp_path, seen)
    assert time.monotonic() - began < 30
    assert launch.failed[0] == 1
    assert launch.exit_codes == (128 + signal.SIGTERM, 7, 128 + signal.SIGTERM)
    assert seen.ends[0] == (1, 7)


def test_others_have_time_to_end_by_themselves(tmp_path: Path) -> None:
    launch = run('[ "$RANK" = 1 ] && exit 7; sleep 0.5; exit 3', 2, tmp_path)
    assert launch == Launch((3, 7), (1, 0), None)


@pytest.mark.parametrize("continues", [True, False])
def test_output_goes_on_until_the_consequence_of_a_failure_is_known(continues: bool, tmp_path: Path) -> None:
    decision: Future[Consequence] = Future()
    seen, known = Seen(decision), tmp_path / "known"

    def decide_after_the_line_of_the_other_rank() -> None:
        if seen.lines[-1][1] == b"still here":
            known.touch()
            threading.Timer(0.1, decision.set_result, [continues]).start()

    seen.on_line = decide_after_the_line_of_the_other_rank
    script = f'[ "$RANK" = 1 ] && exit 7; echo still here; while [ ! -e {known} ]; do sleep 0.05; done; '
    script += "exit 0" if continues else "exec sleep 60"
    launch = run(script, 2, tmp_path, seen)
    assert launch == Launch((0 if continues else 128 + signal.SIGTERM, 7), launch.failed, None)


def test_a_worker_is_restarted_when_that_is_decided_and_no_other_is_left(tmp_path: Path) -> None:
    decision: Future[Consequence] = Future()
    seen = Seen(decision)
    seen.on_line = lambda: threading.Timer(
        0.3, decision.set_result, [{**os.environ, "RANK": "0", "AGAIN": "1"}]
    ).start()
    script = '[ -n "$AGAIN" ] && exit 0; [ "$RANK" = 0 ] && echo fails && exit 7; exit 0'
    launch = run(script, 2, tmp_path, seen)
    assert launch == Launch((0, 0), (0,), None)


def test_a_decision_that_is_never_made_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "DECISION_SECONDS", 0.3)
    assert run("exit 7", 2, tmp_path, Seen(Future())).exit_codes == (7, 7)


def test_a_signal_ends_the_wait_for_a_decision(tmp_path: Path) -> None:
    seen = Seen(Future())
    seen.on_line = lambda: os.kill(os.getpid(), signal.SIGTERM)
    script = '[ "$RANK" = 0 ] && exit 7; sleep 0.3; echo ready; exec sleep 60'
    launch = run(script, 2, tmp_path, seen)
    assert launch.exit_codes == (7, 128 + signal.SIGTERM)
    assert launch.interrupted == signal.SIGTERM


def test_a_worker_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "GRACE_SECONDS", 0.3)
    ready = tmp_path / "ready"
    script = f'if [ "$RANK" = 0 ]; then while [ ! -e {ready} ]; do sleep 0.05; done; exit 1; fi; '
    script += f'trap "" TERM; touch {ready}; while :; do sleep 0.1; done'
    assert run(script, 2, tmp_path).exit_codes == (1, 128 + signal.SIGKILL)


def test_death_by_signal_is_128_and_its_number(tmp_path: Path) -> None:
    launch = run("kill -SEGV $$", 1, tmp_path)
    assert launch.exit_codes == (128 + signal.SIGSEGV,)
    assert launch.failed == (0,)


def test_a_grandchild_that_keeps_the_output_open_is_not_waited_for(tmp_path: Path) -> None:
    began = time.monotonic()
    launch = run("sleep 60 & echo $!", 1, tmp_path)
    assert launch.exit_codes == (0,)
    assert time.monotonic() - began < 30
    os.kill(int((tmp_path / "rank-0.log").read_text()), signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_to_all(number: signal.Signals, tmp_path: Path) -> None:
    seen = Seen()
    name = number.name.removeprefix("SIG")

    def interrupt_when_all_are_ready() -> None:
        if len(seen.lines) == 2:
            os.kill(os.getpid(), number)

    seen.on_line = interrupt_when_all_are_ready
    before = signal.getsignal(number)
    launch = run(f'trap "echo got {name}; exit 9" {name}; echo ready; while :; do sleep 0.05; done', 2, tmp_path, seen)
    assert launch.exit_codes == (9, 9)
    assert launch.interrupted == number
    assert seen.interrupts == [number]
    assert seen.lines.count((0, f"got {name}".encode())) == 1
    assert signal.getsignal(number) == before


def test_a_second_signal_kills(tmp_path: Path) -> None:
    seen = Seen()
    # The worker reports that it is ready and that it got the first signal, and continues to run.
    script = 'trap "echo again" INT; echo ready; while :; do sleep 0.05; done'
    seen.on_line = lambda: os.kill(os.getpid(), signal.SIGINT)
    launch = run(script, 1, tmp_path, seen)
    assert launch.exit_codes == (128 + signal.SIGKILL,)
    assert seen.interrupts == [signal.SIGINT]


def test_it_works_outside_the_main_thread(tmp_path: Path) -> None:
    launches: list[Launch] = []
    thread = threading.Thread(target=lambda: launches.append(run("exit 4", 1, tmp_path)))
    thread.start()
    thread.join(20)
    assert launches[0].exit_codes == (4,)


def test_an_exception_of_a_callback_leaves_no_worker_behind(tmp_path: Path) -> None:
    seen = Seen()

    def fail() -> None:
        raise RuntimeError("seen enough")

    seen.on_line = fail
    with pytest.raises(RuntimeError, match="seen enough"):
        run("echo $$; exec sleep 60", 2, tmp_path, seen)
    for log in tmp_path.glob("rank-*.log"):
        for pid in log.read_text().split():
            with pytest.raises(ProcessLookupError):
                os.kill(int(pid), 0)


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    run("true", 4, tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    run("true", 4, tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_script_without_an_interpreter_line_is_refused_by_the_kernel(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo hello\n")
    script.chmod(0o755)
    with pytest.raises(CommandNotExecutableError, match="#!"):
        run_workers([str(script)], [dict(os.environ)], tmp_path, LaunchObserver())


def test_commands_are_found_as_a_shell_finds_them(tmp_path: Path) -> None:
    assert check_command("sh").endswith("/sh")
    program = tmp_path / "program"
    with pytest.raises(CommandNotFoundError, match="does not exist"):
        check_command(str(program))
    program.write_text("#!/bin/sh\n")
    with pytest.raises(CommandNotExecutableError, match="chmod"):
        check_command(str(program))
    program.chmod(0o755)
    assert check_command(str(program)) == str(program)
    with pytest.raises(CommandNotExecutableError, match="directory"):
        check_command(str(tmp_path) + "/")
    with pytest.raises(CommandNotFoundError, match="PATH"):
        check_command("no-such-program-at-all")
