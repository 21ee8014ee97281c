"""Fixtures: one cluster for all tests; each test checks that no job has left anything on a node."""

from collections.abc import Iterator

import pytest

from tests.slurm.cluster import Cluster, why_no_slurm


@pytest.fixture(scope="session")
def running() -> Iterator[Cluster]:
    """Provide the running cluster."""
    reason = why_no_slurm()
    if reason:
        pytest.skip(f"skipped: no Slurm: {reason}")
    cluster = Cluster()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    """Provide the cluster, and check at the end that every job has left the nodes as they were."""
    yield running
    running.cancel_all()
    assert running.left() == {"n1": [], "n2": []}


@pytest.fixture
def site(cluster: Cluster) -> Iterator[Cluster]:
    """Provide the cluster with the scripts of examples/slurm/site."""
    cluster.install_site_scripts()
    yield cluster
    cluster.cancel_all()
    cluster.remove_site_scripts()
