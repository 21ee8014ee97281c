"""Addresses at which a process listens, or none does."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from switchml.common.grpc_address import nothing_listens


async def test_a_port_without_a_process_refuses() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        assert await nothing_listens(f"127.0.0.1:{held.getsockname()[1]}")


async def test_a_process_that_listens_does_not_refuse(tmp_path: Path) -> None:
    path = tmp_path / "switch.sock"
    tcp = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    unix = await asyncio.start_unix_server(lambda *_: None, path)
    async with tcp, unix:
        assert not await nothing_listens(f"127.0.0.1:{tcp.sockets[0].getsockname()[1]}")
        assert not await nothing_listens(f"unix:{path}")


async def test_a_socket_without_a_process_refuses(tmp_path: Path) -> None:
    path = tmp_path / "switch.sock"
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(str(path))
        ended.listen()
    assert await nothing_listens(f"unix:{path}")
    path.unlink()
    assert await nothing_listens(f"unix:{path}")


async def test_an_unknown_host_is_no_refusal() -> None:
    assert not await nothing_listens("switch.invalid:9559")
