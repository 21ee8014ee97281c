"""The main program of ranks that train with PyTorch: it joins the process group and answers commands."""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from switchml.benchmarks.workers.counters import take_share

__all__ = ["serve"]


def serve(answer: Callable[..., dict[str, Any]], end: Callable[[], None]) -> int:
    """Join the group and answer commands until the end; return the exit status.

    The arguments of the program are the backend and the benchmark's Unix socket. `answer` gets the words of a command;
    `end` is called before the process group ends.
    """
    backend, address = sys.argv[1:]
    share = take_share()
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        with connection.makefile("rw", encoding="ascii") as stream:

            def say(content: dict[str, Any]) -> None:
                stream.write(json.dumps(content) + "\n")
                stream.flush()

            say({"rank": dist.get_rank(), "pid": os.getpid(), "share": share})
            for line in stream:
                if line.strip() == "end":
                    break
                try:
                    say(answer(*line.split()))
                except Exception as error:
                    traceback.print_exc()
                    say({"error": f"{type(error).__name__}: {error}"})
                    return 1
    end()
    dist.destroy_process_group()
    return 0
