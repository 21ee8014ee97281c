"""The ranks of a process group as separate processes, forked from one that has already imported torch."""

from __future__ import annotations

import faulthandler
import itertools
import logging
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

HOST = "127.0.0.1"
SECONDS = 300.0  # which only a hang reaches
STACKS_SECONDS = 290.0  # after which a rank writes down what its threads do
# Modules that every rank would import; DistributedDataParallel imports torch._dynamo, which takes seconds.
PRELOADED = (
    "pytest",
    "sklearn.datasets",
    "switchml.torch.process_group",
    "torch._dynamo",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torchft",
)
_numbers = itertools.count()


class RendezvousServer:
    """A store in this process, and a fork server that has torch loaded."""

    def __init__(self) -> None:
        self._stacks = tempfile.TemporaryDirectory(prefix="swml-stacks-")
        self.stacks = Path(self._stacks.name)
        self._store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(list(PRELOADED))

    @property
    def port(self) -> int:
        return int(self._store.port)

    def __enter__(self) -> RendezvousServer:
        return self

    def __exit__(self, *_: object) -> None:
        del self._store
        self._stacks.cleanup()


@dataclass
class Rank:
    """A process that runs one rank."""

    process: Any
    results: Connection
    stacks: Path
    result: Any = None
    failure: str = ""
    seconds: float = 0.0  # until the rank has ended

    @property
    def end(self) -> str:
        """The failure of the rank, or what its threads do if it has not ended."""
        if self.seconds:
            return self.failure or "has ended"
        return "has not ended:\n" + (self.stacks.read_text() if self.stacks.exists() else "has not come to its start")


class Ranks:
    """Runs functions as ranks: `function(rank, *arguments)` inside an initialized process group."""

    def __init__(self, server: RendezvousServer, run_dir: Path | None, **variables: str) -> None:
        self._server = server
        self._run_dir = run_dir
        self._variables = variables  # of the environment

    def start(
        self,
        world_size: int,
        function: Callable[..., Any],
        *arguments: Any,
        backend: str = "switchml",
        environment: dict[str, str] | None = None,
        daemon: bool = True,
    ) -> list[Rank]:
        """Start the ranks; `finish` waits for them. Those that are not daemons may start processes themselves."""
        variables = {"OMP_NUM_THREADS": "1", "SWITCHML_RUN_DIR": str(self._run_dir or "/nonexistent")}
        number = next(_numbers)
        started = []
        for rank in range(world_size):
            results, theirs = self._server.context.Pipe(duplex=False)
            stacks = self._server.stacks / f"{number}-{rank}"
            process = self._server.context.Process(
                target=_run,
                args=(
                    theirs,
                    stacks,
                    (self._server.port, f"{os.getpid()}-{number}", rank, world_size, backend),
                    variables | self._variables | (environment or {}),
                    function,
                    arguments,
                ),
                daemon=daemon,
            )
            process.start()
            theirs.close()
            started.append(Rank(process, results, stacks))
        return started

    def finish(self, ranks: list[Rank]) -> list[Rank]:
        """Wait until all ranks have ended, and return their results."""
        begin = time.monotonic()
        open_ranks = {rank.results: rank for rank in ranks}
        try:
            while open_ranks:
                ready = wait(list(open_ranks), timeout=begin + SECONDS - time.monotonic())
                assert ready, f"a hang of {SECONDS:g} s\n" + _ends(ranks)
                for connection in [one for one in open_ranks if one in ready]:
                    rank = open_ranks.pop(connection)
                    rank.seconds = time.monotonic() - begin
                    try:
                        rank.result, rank.failure = connection.recv()
                    except EOFError:
                        rank.failure = "the process ended without a word"
        finally:
            for rank in ranks:
                if open_ranks:
                    rank.process.kill()
                rank.process.join(10)
                rank.results.close()
        return ranks

    def run(self, world_size: int, function: Callable[..., Any], *arguments: Any, **options: Any) -> list[Any]:
        """Run the ranks to their end, and return their results by rank."""
        ranks = self.finish(self.start(world_size, function, *arguments, **options))
        assert not any(rank.failure for rank in ranks), _ends(ranks)
        return [rank.result for rank in ranks]


def _ends(ranks: list[Rank]) -> str:
    return "\n".join(f"rank {number}: {rank.end}" for number, rank in enumerate(ranks))


def _run(
    results: Connection,
    stacks: Path,
    place: tuple[int, str, int, int, str],
    variables: dict[str, str],
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    port, name, rank, world_size, backend = place
    os.environ.update(variables)
    logging.basicConfig(stream=sys.stderr, format=f"[rank {rank}] %(message)s")
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(STACKS_SECONDS, file=stacks.open("w"))
    try:
        store = dist.TCPStore(HOST, port, is_master=False, wait_for_workers=False)
        dist.init_process_group(
            backend,
            store=dist.PrefixStore(name, store),
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=40),
        )
        outcome = (function(rank, *arguments), "")
        if dist.is_initialized():
            dist.destroy_process_group()
    except BaseException:
        outcome = (None, traceback.format_exc())
    results.send(outcome)
    results.close()
