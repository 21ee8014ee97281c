"""`switchml-ctl bench ddp`: a few training steps over links of a limited rate."""

import sys
import tempfile
from pathlib import Path

import pytest
from fabric_harness import Ctl, why_no_namespaces

from switchml.topologies.namespaces import Namespaces

REASON = why_no_namespaces()


@pytest.mark.skipif(bool(REASON), reason=f"skipped: no network namespaces: {REASON}")
def test_steps_of_two_workers() -> None:
    with tempfile.TemporaryDirectory(prefix="swml-") as base:  # short enough for the paths of Unix sockets
        ctl = Ctl(Path(base) / "run")
        small = ["--link", "1gbit", "--workers", "2", "--repetitions", "1", "--steps", "1"]
        result = ctl.json("bench", "ddp", *small, "--torch-python", sys.executable, timeout=180)
        assert Namespaces(Path(base) / "run-links").existing() == []
    rows = {(row["wrapper"], row["backend"]): row for row in result["rows"]}
    assert set(rows) == {(wrapper, backend) for wrapper in ("ddp", "fsdp") for backend in ("switchml", "gloo")}
    size = 4 * 4 * 1024 * 1025
    for row in rows.values():
        assert row["parameters"] == size // 4
        assert row["median"] > 0.9 * row["bound"]
    # Two workers send as much in a ring as to a switch: the gradients once, and a few packets for barriers.
    for backend in ("switchml", "gloo"):
        assert size <= rows["ddp", backend]["link_bytes"] <= 1.1 * size
