"""Sums in lanes of 32, 16 and 8 bits have the same bits on every switch, over every transport, and after losses."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ptf_tests.tofino_emulator.program import PROGRAM
from tests.fabric.emulated_tofino import ALONE, LEAF, SPINE, VALUES, EmulatedTofino, Place
from tests.fabric.test_namespaces import needs_bmv2
from tests.support.fabric_harness import Ctl, needs_namespaces

RANKS = 3  # of which two share a host where the fabric has two hosts
FAULTS = ("--drop", "0.02", "--duplicate", "0.02", "--delay", "0.02", "--seed", "5")

NAMESPACES = ("--workers", "2")
FABRICS = {
    "shm": ("--transport", "shm"),
    "udp": ("--transport", "udp"),
    "shm-faults": ("--transport", "shm", *FAULTS),
    "udp-faults": ("--transport", "udp", *FAULTS),
    "soft": ("--switch", "soft", *NAMESPACES),
    "bmv2": ("--switch", "bmv2", *NAMESPACES),
}
MARKS = {"soft": [needs_namespaces], "bmv2": [needs_namespaces, needs_bmv2]}


@dataclass(frozen=True)
class Outcome:
    """The hash of each result of a job, and the number of its packets that the switch dropped, by reason."""

    sums: dict[str, str]
    dropped: dict[str, int]


def run_job(ctl: Ctl, *options: str) -> Outcome:
    """Run the job, and check that all ranks have the same results."""
    job = ctl.json("job", "start", "--workers", str(RANKS), *options, *ctl.worker("lanes"))
    assert job["state"] == "COMPLETED"
    [first, *others] = [json.loads((Path(job["run_dir"]) / f"sums-{rank}.json").read_text()) for rank in range(RANKS)]
    assert first["values"] == VALUES
    assert all(other == first for other in others)
    return Outcome(first["sums"], job["switch"]["dropped"])


@pytest.fixture(scope="module")
def expected() -> Iterator[dict[str, str]]:
    """Provide the sums of the embedded fabric over shared memory."""
    base = Path(tempfile.mkdtemp(prefix="swml-"))
    ctl = Ctl(base / "run")
    try:
        ctl.run("up", "--values", str(VALUES))
        yield run_job(ctl).sums
    finally:
        ctl.run("down")
        shutil.rmtree(base)


def test_every_width_and_rounding_gives_other_bits(expected: dict[str, str]) -> None:
    of_float32 = [digest for call, digest in expected.items() if call.startswith("sum of 700 float32 as ")]
    assert len(of_float32) == len(set(of_float32)) == 5


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in FABRICS])
def test_every_fabric_gives_the_same_bits_in_every_run(ctl: Ctl, name: str, expected: dict[str, str]) -> None:
    ctl.run("up", *FABRICS[name], "--values", str(VALUES))
    for _ in range(2):
        outcome = run_job(ctl)
        assert outcome.sums == expected
        assert ("injected_loss" in outcome.dropped) == name.endswith("faults")


@pytest.mark.skipif(not PROGRAM.exists(), reason="skipped: the program was not compiled for the emulator")
@pytest.mark.parametrize("place", [ALONE, SPINE, LEAF], ids=["alone", "spine", "leaf"])
def test_the_emulated_tofino_gives_the_same_bits(ctl: Ctl, place: Place, expected: dict[str, str]) -> None:
    # Tofino expands no codes; above the switches of the ranks it gets words.
    takes_codes = place is SPINE
    usual = {call: digest for call, digest in expected.items() if takes_codes or not call.endswith(" codes")}
    assert takes_codes == (usual == expected)
    with EmulatedTofino(ctl, place):
        assert run_job(ctl, "--switch", place.top).sums == usual
