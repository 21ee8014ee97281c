"""Tests of the backend of torch.distributed: real processes over a real fabric. `make test-torch` runs them."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed here; `make test-torch` uses a separate environment")

from tests.support.fabric_harness import Ctl
from tests.torch.torch_harness import Ranks, RendezvousServer


@pytest.fixture(scope="session")
def server() -> Iterator[RendezvousServer]:
    """Provide the store of all groups of the tests, and the process from which the ranks are forked."""
    with RendezvousServer() as running:
        yield running


def running_fabric(*options: str) -> Iterator[Ctl]:
    with tempfile.TemporaryDirectory(prefix="swml-") as directory:  # short, because paths of Unix sockets must be short
        control = Ctl(Path(directory) / "run")
        control.run("up", *options)
        try:
            yield control
        finally:
            control.run("down")


@pytest.fixture(scope="session")
def fabric() -> Iterator[Ctl]:
    """Provide a fabric for all tests that do not change it."""
    yield from running_fabric()


@pytest.fixture
def own_fabric() -> Iterator[Ctl]:
    """Provide a separate fabric, which the test may break."""
    yield from running_fabric()


@pytest.fixture
def ranks(server: RendezvousServer, fabric: Ctl) -> Ranks:
    """Provide a runner of functions as the ranks of a job on the common fabric."""
    return Ranks(server, fabric.run_dir)


@pytest.fixture
def over_switch(server: RendezvousServer, fabric: Ctl) -> Ranks:
    """Provide the same for ranks that make no direct calls: the switch adds up all their values."""
    return Ranks(server, fabric.run_dir, SWITCHML_DIRECT="0")
