"""RDMA devices that cannot be opened, and what `doctor` says of those that can."""

from __future__ import annotations

import asyncio
import importlib
import os
import resource
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from switchml.dataplane import devices
from switchml.dataplane.devices import built, open_rdma
from switchml.host_agent.daemon import _device_lost, main
from switchml.host_agent.errors import DeviceLost
from switchml.ops import doctor

needs_library = pytest.mark.skipif(not built("rdma"), reason="skipped: built without libibverbs-dev")


@needs_library
def test_a_device_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="there is no RDMA device nothing0"):
        open_rdma("nothing0", "10.0.0.1")


@pytest.mark.parametrize("device", ["mlx5_0/0", "mlx5_0/x", "mlx5_0/1/1", "mlx5_0/-1", "mlx5_0/1000"])
def test_a_port_that_is_none(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_module", lambda _: None)
    with pytest.raises(ValueError, match="is not a port of an RDMA device"):
        open_rdma(device, "10.0.0.1")


def test_a_build_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(OSError, match=r"this build of SwitchML has no RDMA: install its library .*libibverbs-dev"):
        open_rdma("mlx5_0", "10.0.0.1")


def test_the_agent_serves_a_device_with_one_thread() -> None:
    arguments = ["--controller", "localhost:1", "--socket", "s", "--transport", "rdma", "--device", "mlx5_0"]
    result = CliRunner().invoke(main, [*arguments, "--threads", "2"])
    assert result.exit_code == 1
    assert "an RDMA device has one queue pair for each job, which one data thread moves, not 2" in result.output


async def test_an_agent_ends_with_its_device() -> None:
    event = os.eventfd(0, os.EFD_NONBLOCK)
    try:
        engine: Any = SimpleNamespace(lost_descriptor=lambda: event, lost=lambda: "it was removed")
        ends = asyncio.create_task(_device_lost(engine))
        done, _ = await asyncio.wait([ends], timeout=0.05)
        assert not done
        os.eventfd_write(event, 1)
        with pytest.raises(DeviceLost, match="it was removed"):
            await asyncio.wait_for(ends, 30)
    finally:
        os.close(event)


PORTS = [
    ("mlx5_0/1", "mlx5_core", "active", 4096, ["fe80::1", "10.0.0.1"]),
    ("rxe0/1", "", "down", 1024, []),
    ("mlx5_1", "", "cannot be opened", 0, []),
]


def test_doctor_describes_each_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_module", lambda _: SimpleNamespace(list_ports=lambda: PORTS))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64 << 10, 64 << 10))
    active, down, closed, memory = doctor._rdma()
    assert (active.name, active.status) == ("RDMA mlx5_0/1", doctor.OK)
    assert active.found == "mlx5_core, active, messages of 4096 bytes, fe80::1, 10.0.0.1"
    assert down.remedy == "Give its network interface an IPv4 address, and set it up."
    assert (closed.found, closed.status) == ("cannot be opened", down.status)
    assert memory.found.startswith("64 KiB may be locked")
