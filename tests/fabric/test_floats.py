"""Sums of floats have the bits of the reference in numpy on every switch that adds floats; others refuse such jobs."""

from __future__ import annotations

import pytest

from tests.fabric.test_namespaces import needs_bmv2
from tests.support.fabric_harness import Ctl, needs_namespaces

FABRICS = {
    "udp-faults": ("--transport", "udp", "--drop", "0.02", "--duplicate", "0.02", "--delay", "0.02", "--seed", "5"),
    "bmv2": ("--switch", "bmv2", "--program", "switchml_floats", "--workers", "3"),
}

on_bmv2 = [needs_namespaces, needs_bmv2]


@pytest.mark.parametrize("name", [pytest.param(name, marks=on_bmv2 if name == "bmv2" else ()) for name in FABRICS])
def test_sums_of_floats_are_those_of_the_reference(ctl: Ctl, name: str) -> None:
    ctl.run("up", *FABRICS[name])
    job = ctl.json("job", "start", "--workers", "3", "--wire", "floats", *ctl.worker("floats"))
    assert job["state"] == "COMPLETED"
    assert ("injected_loss" in job["switch"]["dropped"]) == name.endswith("faults")


@needs_namespaces
@needs_bmv2
def test_other_programs_of_bmv2_refuse_jobs_with_sums_of_floats(ctl: Ctl) -> None:
    ctl.run("up", "--switch", "bmv2", "--workers", "2")
    refused = ctl.run("job", "start", "--workers", "2", "--wire", "floats", *ctl.worker("floats"), status=3)
    assert "BMv2 with the program switchml_floats" in refused.stderr
