"""Runs programs of pupils, alone and as jobs, and reads what their ranks print: for the checks of all lessons."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

HERE = Path(__file__).parent
SECONDS = 240  # for a command: only one that hangs takes as long
_GRACE_SECONDS = 60  # after SIGTERM: torchrun and switchml-ctl kill their ranks within 30 s
_BIN = Path(sys.executable).parent
_HOLE = re.compile(r"NotImplementedError: (hole \d.*)")


class Wrong(Exception):
    """A program does not do what its lesson asks for; the text says what is wrong in the terms of the lesson."""


def require(condition: object, message: str) -> None:
    """Raise `Wrong` unless the condition holds."""
    if not condition:
        raise Wrong(message)


def load(program: Path) -> ModuleType:
    """Import a program of a lesson from its file."""
    spec = importlib.util.spec_from_file_location(f"lesson_{program.stem}", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # which dataclasses look for
    spec.loader.exec_module(module)
    return module


@dataclass
class Outcome:
    """A program that has ended on all ranks.

    Attributes:
        ranks: the last JSON object that each rank printed, by rank; a rank that printed none is missing.
        statuses: the exit status of each rank.
        switch: the counters of the switch for this job.
        outputs: all that each rank has printed.

    """

    ranks: dict[int, dict[str, Any]]
    statuses: list[int]
    switch: dict[str, int]
    outputs: list[str]


class Fabric:
    """A switch, a controller and an agent on this machine, which end with the `with` block.

    Args:
        options: of `switchml-ctl up`.
        controller: the address of a controller that runs already, in place of a new fabric.

    """

    def __init__(self, *options: str, controller: str = "") -> None:
        self._options = options
        self._directory = tempfile.TemporaryDirectory(prefix="switchml-lesson-")
        self._where = ["--run-dir", f"{self._directory.name}/run"]
        if controller:
            self._where += ["--controller", controller]
        self._starts = not controller
        ours = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHML_")}
        # Ranks on one machine would add up their values themselves; lessons need packets.
        self._environment = ours | {"PATH": f"{_BIN}:{os.environ['PATH']}", "SWITCHML_DIRECT": "0"}

    def __enter__(self) -> Fabric:
        if self._starts:
            self.ctl("up", *self._options)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        try:
            if self._starts:
                self.ctl("down")
        finally:
            self._directory.cleanup()

    def ctl(self, *arguments: str) -> str:
        """Run switchml-ctl, and return its standard output."""
        done = self._run(*arguments)
        if done.returncode != 0:
            raise RuntimeError(f"switchml-ctl {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def job(
        self,
        workers: int,
        program: Path,
        *arguments: str,
        options: Sequence[str] = (),
        environment: dict[str, str] | None = None,
    ) -> Outcome:
        """Run a program on the ranks of a job; `options` are those of `job start`.

        Raises:
            NotImplementedError: a rank has come to a hole.
            RuntimeError: the job could not be started.
            Wrong: it does not end.

        """
        given = [part for name, value in (environment or {}).items() for part in ("--env", f"{name}={value}")]
        command = ["--", sys.executable, str(program), *arguments]
        done = self._run("job", "start", "--workers", str(workers), "--json", *options, *given, *command)
        answer = json.loads(done.stdout)
        if "exit_codes" not in answer:
            raise RuntimeError(f"the job was not started: {answer}\n{done.stderr}")
        logs = [Path(answer["run_dir"]) / f"rank-{rank}.log" for rank in range(workers)]
        texts = [log.read_text(encoding="utf-8") if log.exists() else "" for log in logs]
        for text in texts:
            if hole := _HOLE.search(text):
                raise NotImplementedError(hole[1])
        ranks = {rank: found for rank, text in enumerate(texts) if (found := last_object(text)) is not None}
        return Outcome(ranks, answer["exit_codes"], answer["switch"], texts)

    def succeeding(self, workers: int, program: Path, *arguments: str, **options: Any) -> Outcome:
        """Run a program as `job` does; every rank must end with status 0 and print an object.

        Raises:
            Wrong: one has failed, or has printed none.

        """
        done = self.job(workers, program, *arguments, **options)
        for rank, status in enumerate(done.statuses):
            last = done.outputs[rank].strip().splitlines()[-1:] or ["it printed nothing"]
            require(status == 0, f"rank {rank} failed with status {status}: {last[0]}")
            require(rank in done.ranks, f"rank {rank} printed no result: leave main() as it is")
        return done

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run([str(_BIN / "switchml-ctl"), *self._where, *arguments], self._environment)


def torchrun(ranks: int, program: Path) -> dict[int, dict[str, Any]]:
    """Run a program by torchrun, and return the JSON object that each rank printed.

    Raises:
        NotImplementedError: a rank has come to a hole.
        Wrong: a rank has failed, or does not end.

    """
    with tempfile.TemporaryDirectory(prefix="switchml-lesson-") as logs:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--redirects", "3"]
        command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--log-dir", logs, str(program)]
        done = run(command)
        texts = {int(path.parent.name): path.read_text(encoding="utf-8") for path in Path(logs).glob("**/stderr.log")}
        for text in texts.values():
            if hole := _HOLE.search(text):
                raise NotImplementedError(hole[1])
        last = next((lines[-1] for text in texts.values() if (lines := text.strip().splitlines())), done.stderr[-500:])
        require(done.returncode == 0, f"a rank has failed: {last}")
        printed = {int(path.parent.name): last_object(path.read_text()) for path in Path(logs).glob("**/stdout.log")}
    found = {rank: said for rank, said in printed.items() if said is not None}
    require(
        sorted(found) == list(range(ranks)), f"only the ranks {sorted(found)} printed a result: leave main() as it is"
    )
    return found


def run(command: Sequence[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command that starts ranks, or what they need, and return what it has printed.

    Raises:
        Wrong: it does not end.

    """
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=environment
    ) as process:
        try:
            output, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise Wrong(
                f"it has not ended after {SECONDS} s: a rank loops, or waits for what no other rank sends"
            ) from None
        finally:
            _end(process)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _end(process: subprocess.Popen[str]) -> None:
    """End a command that still runs by SIGTERM, so that it ends its ranks: SIGKILL would leave them running."""
    if process.poll() is None:
        process.terminate()
        try:
            process.communicate(timeout=_GRACE_SECONDS)  # it reads, because a full pipe would hold the command up
        except subprocess.TimeoutExpired:
            process.kill()


def last_object(text: str) -> dict[str, Any] | None:
    """Return the last line that is a JSON object; None if no line is one."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    return None
