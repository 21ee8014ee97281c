"""The end of a gRPC server that asyncio runs, with a deadline."""

from __future__ import annotations

import asyncio
import logging

import grpc

__all__ = ["last_tasks_end", "stop_server"]

_LOG = logging.getLogger(__name__)
_MARGIN_SECONDS = 3.0


async def stop_server(server: grpc.aio.Server, grace: float) -> None:
    """Refuse new calls, let those that are under way go on for ``grace`` seconds, and wait for their tasks to end.

    gRPC's own ``stop`` can wait for ever when a call is aborted at the same moment; a process that was told to
    end has to.
    """
    try:
        await asyncio.wait_for(server.stop(grace), grace + _MARGIN_SECONDS)
    except asyncio.TimeoutError:
        _LOG.warning("the gRPC server has not ended within %g s; it is left as it is", grace + _MARGIN_SECONDS)


async def last_tasks_end(seconds: float) -> None:
    """Wait for gRPC's tasks for the last calls, which asyncio.run would cancel, and that prints tracebacks."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if tasks:
        await asyncio.wait(tasks, timeout=seconds)
