"""Stop an asyncio gRPC server within a deadline."""

from __future__ import annotations

import asyncio
import logging

import grpc

__all__ = ["last_tasks_end", "stop_server"]

_LOG = logging.getLogger(__name__)
_MARGIN_SECONDS = 3.0


async def stop_server(server: grpc.aio.Server, grace: float) -> None:
    """Refuse new calls, let running calls continue for ``grace`` seconds, and wait for their tasks to end.

    gRPC's own ``stop`` can wait forever if a call is aborted at the same moment, but a process that was told to end
    must end.
    """
    try:
        await asyncio.wait_for(server.stop(grace), grace + _MARGIN_SECONDS)
    except asyncio.TimeoutError:
        _LOG.warning("the gRPC server did not stop within %g s and is abandoned", grace + _MARGIN_SECONDS)


async def last_tasks_end(seconds: float) -> None:
    """Wait for the tasks of gRPC's last calls; asyncio.run would cancel them, which prints tracebacks."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if tasks:
        await asyncio.wait(tasks, timeout=seconds)
