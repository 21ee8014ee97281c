"""Tests of the backend of torch.distributed: real processes over a real fabric. `make test-torch` runs them."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed here; `make test-torch` has an environment of its own")

FABRIC_TESTS = Path(__file__).parents[1] / "fabric"
sys.path.insert(0, str(FABRIC_TESTS))

from fabric_harness import Ctl  # noqa: E402
from torch_harness import Ranks, RendezvousServer  # noqa: E402


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "long: takes tens of seconds; left out by `make test-torch ARGS='-m \"not long\"'`"
    )


@pytest.fixture(scope="session")
def server() -> Iterator[RendezvousServer]:
    """The store of all groups that the tests make, and the process that theirs are forked from."""
    with RendezvousServer() as running:
        yield running


def running_fabric(*options: str) -> Iterator[Ctl]:
    with tempfile.TemporaryDirectory(prefix="swml-") as directory:  # short, because Unix sockets have short paths
        control = Ctl(Path(directory) / "run")
        control.run("up", *options)
        try:
            yield control
        finally:
            control.run("down")


@pytest.fixture(scope="session")
def fabric() -> Iterator[Ctl]:
    """A fabric for all tests that leave it as it is."""
    yield from running_fabric()


@pytest.fixture
def own_fabric() -> Iterator[Ctl]:
    """A fabric of the test's own, which it may break."""
    yield from running_fabric()


@pytest.fixture
def ranks(server: RendezvousServer, fabric: Ctl) -> Ranks:
    """Runs a function as the ranks of a job on the common fabric."""
    return Ranks(server, fabric.run_dir)
