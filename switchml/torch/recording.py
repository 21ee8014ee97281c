"""Records the steps of a training program and its collectives, for `switchml-ctl advise`.

It is turned on by SWITCHML_RECORD, a text of JSON that `switchml.ops.recorded_steps` makes: {"directory", "backend",
"steps", "seconds"}. The program then uses that backend whatever it asks for, and ends after `steps` steps, or when
`seconds` are over and it has made the few steps that a statement needs. Each rank leaves a file `rank-N.json`.

A step ends when an optimizer's `step` does. Times are in seconds since the step before.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import inspect
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from switchml.torch_backend import RECORD

__all__ = ["Recorder", "install", "recorder"]

_FEWEST_STEPS: Final = 5
_NEXT: Final = 2  # steps until the end that rank 0 announces, which no rank can have reached before it reads that
_BLOCK: Final = 256  # elements, of which a sparse all-reduce sends those that are not all zero
_LOOKED_AT: Final = 2  # steps, the first ones, whose tensors are searched for blocks of zeros
_COMPRESSED: Final = 1 << 23  # elements at most, with whose compression the time of a byte is found

SecondsToCompress = Callable[[int], float]
"""Returns the seconds in which this rank does its part of compressing this number of elements."""

recorder: Recorder | None = None
"""That of this process; None if it records nothing."""


@dataclasses.dataclass(frozen=True)
class Told:
    """The directory of the files, the steps or seconds after which a program ends, and what times compression."""

    directory: Path
    steps: int
    seconds: float
    seconds_to_compress: SecondsToCompress


class Recorder:
    """The steps of this process."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._lock = threading.Lock()  # guards the members below; works end on several threads
        self._steps: list[dict[str, Any]] = []
        self._events: list[dict[str, Any]] = []
        self._began = self._first = time.perf_counter()
        self._overhead = 0.0
        self._compressing = 0.0  # seconds for a byte
        self._optimizer_began = 0.0
        self._numbers = 0
        self._written = False
        register_optimizer_step_pre_hook(self._before_optimizer)
        register_optimizer_step_post_hook(self._after_optimizer)
        atexit.register(self._write)

    # ---- collectives -----------------------------------------------------------------------------------------------

    def started(self, name: str, tensors: list[Tensor]) -> int:
        """Record the start of a collective, and return its number."""
        now = time.perf_counter()
        size = sum(tensor.nbytes for tensor in tensors)
        event: dict[str, Any] = {"kind": "start", "name": name.split()[0], "bytes": size}
        event["dtype"] = str(tensors[0].dtype).removeprefix("torch.") if tensors else ""
        if len(self._steps) < _LOOKED_AT and name.startswith("all_reduce"):
            event["filled"] = _filled_blocks(tensors)
        with self._lock:
            self._numbers += 1
            event |= {"number": self._numbers, "at": now - self._began - self._overhead}
            self._events.append(event)
            self._overhead += time.perf_counter() - now
            return self._numbers

    def ended(self, number: int) -> None:
        """Record the end of a collective."""
        self._add("end", number)

    def waits(self, number: int) -> None:
        """Record that a thread of the program begins to wait for a collective."""
        self._add("wait", number)

    def waited(self, number: int) -> None:
        """Record that it goes on."""
        self._add("go on", number)

    def _add(self, kind: str, number: int) -> None:
        now = time.perf_counter()
        with self._lock:
            self._events.append({"kind": kind, "number": number, "at": now - self._began - self._overhead})

    # ---- steps -----------------------------------------------------------------------------------------------------

    def _before_optimizer(self, *_: object) -> None:
        self._optimizer_began = time.perf_counter()

    def _after_optimizer(self, *_: object) -> None:
        now = time.perf_counter()
        with self._lock:
            step = {
                "seconds": now - self._began - self._overhead,
                "optimizer": now - self._optimizer_began,
                "events": self._events,
            }
            self._steps.append(step)
            self._events, self._overhead, self._began = [], 0.0, now
            if len(self._steps) == 1:
                self._first = now
        if len(self._steps) == 1:
            self._compressing = self._compress_largest(self._steps[0]["events"])
        if self._is_last(now):
            self._write()
            dist.barrier()  # other ranks may still need this one for the step's collectives
            raise SystemExit(0)
        self._began = time.perf_counter()

    def _compress_largest(self, events: list[dict[str, Any]]) -> float:
        sums = [one for one in events if one["kind"] == "start" and one["name"].startswith("all_reduce")]
        largest = max(sums, key=lambda one: int(one["bytes"]), default=None)
        if largest is None or not largest["bytes"]:
            return 0.0
        item = int(getattr(torch, largest["dtype"]).itemsize)
        elements = min(int(largest["bytes"]) // item, _COMPRESSED)
        return self._told.seconds_to_compress(elements) / (elements * item)

    def _is_last(self, now: float) -> bool:
        done = len(self._steps)
        last = self._told.directory / "last-step"
        if (
            dist.get_rank() == 0
            and now - self._first > self._told.seconds
            and done >= _FEWEST_STEPS
            and not last.exists()
        ):
            partial = last.with_suffix(".new")
            partial.write_text(str(done + _NEXT))
            partial.rename(last)
        return done >= (int(last.read_text()) if last.exists() else self._told.steps)

    def _write(self) -> None:
        if self._written or not dist.is_initialized():
            return
        self._written = True
        file = self._told.directory / f"rank-{dist.get_rank()}.json"
        partial = file.with_suffix(".new")
        content = {"world_size": dist.get_world_size(), "steps": self._steps, "compressing": self._compressing}
        partial.write_text(json.dumps(content))
        partial.rename(file)


def _filled_blocks(tensors: list[Tensor]) -> float:
    """Return the share of blocks that have a value other than zero."""
    filled = blocks = 0
    for tensor in tensors:
        if tensor.layout != torch.strided or not tensor.numel():
            return 1.0
        flat = tensor.detach().reshape(-1)
        padded = torch.nn.functional.pad(flat, (0, -flat.numel() % _BLOCK)).view(-1, _BLOCK)
        filled += int((padded != 0).any(1).sum())
        blocks += len(padded)
    return filled / blocks if blocks else 1.0


def install(seconds_to_compress: SecondsToCompress) -> None:
    """Begin to record, as SWITCHML_RECORD says, and let all process groups use its backend."""
    global recorder
    told = json.loads(os.environ[RECORD])
    recorder = Recorder(Told(Path(told["directory"]), int(told["steps"]), float(told["seconds"]), seconds_to_compress))
    backend = str(told["backend"])
    for name in ("init_process_group", "new_group"):
        wrapped = _with_backend(getattr(dist, name), backend)
        setattr(dist, name, wrapped)
        setattr(dist.distributed_c10d, name, wrapped)


def _with_backend(function: Any, backend: str) -> Any:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        arguments = signature.bind(*given, **named).arguments | {"backend": backend}
        if backend != "switchml":
            arguments.pop("pg_options", None)
        return function(**arguments)

    return called
