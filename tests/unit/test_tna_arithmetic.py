"""For every slot state and every packet, the TNA program does what the protocol requires (tna_reference.py)."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from ptf_tests.tofino_emulator.lookup import Lookup
from ptf_tests.tofino_emulator.program import values_per_packet
from ptf_tests.wire import Packet
from switchml.dataplane.constants import DropReason, Flag, Verdict
from tests.unit.tna_harness import INGRESS, Chip, Job, program, result_of, unsigned
from tests.unit.tna_reference import DECISIONS, Contribution, Half, PhasePredicate, Sums, contribute

EPOCHS = (1, 2)
PHASES = (0, 1, 2, 3)
LANES = 4  # all cases of these lanes are tried; random sequences and the packet tests try the others
OTHER = Half(9, 9, 9, 9, 9, 9)
LEFTOVER = 0x5A5A5A5A  # the content of a field that was never set, for lanes that the program does not fetch


def with_lanes(compiled: Mapping[str, Any], lanes: int) -> Mapping[str, Any]:
    """Return the program with only the sums of its first lanes, which makes it fast; the rest is unchanged."""
    lighter = copy.deepcopy(compiled)
    tables = lighter["ingress"]["tables"]

    def is_left_out(statement: list[Any]) -> bool:
        name = tables[statement[1]]["name"].rsplit(".", 1)[-1] if statement[0] == "apply" else ""
        return name.startswith("lanes_table_") and int(name.removeprefix("lanes_table_")) >= lanes

    def lighten(node: Any) -> None:
        if isinstance(node, list):
            node[:] = [one for one in node if not (isinstance(one, list) and one and is_left_out(one))]
            for one in node:
                lighten(one)

    lighten(lighter["ingress"]["control"])
    return lighter


@pytest.fixture(scope="module")
def chip() -> Chip:
    return Chip(with_lanes(program(), LANES))


# ---- the tables of the program compared with the table of the reference ----------------------------------------------


PHASE_PREDICATES = {PhasePredicate.STALE: 0, PhasePredicate.SAME: 1, PhasePredicate.NEWER: 2}  # common/types.p4
SUM_ACTIONS = {
    Sums.OVERWRITE: {"overwrite"},
    Sums.ADD: {"add", "combine"},
    Sums.FETCH: {"fetch"},
    Sums.NOTHING: {"NoAction"},
}


def run_table(compiled: Mapping[str, Any], name: str, **columns: int) -> tuple[str, tuple[int, ...]]:
    """Return the action of each const entry (the last part of its name, without a number) with its arguments.

    ``columns`` are the key's fields, by the last part of their names in the source.
    """
    parts = compiled["ingress"]
    table = next(one for one in parts["tables"].values() if one["name"].endswith(f".{name}"))
    names = [public.rsplit(".", 1)[-1].partition("[")[0] for _, _, public, _ in table["keys"]]
    key = tuple(columns[one] for one in names)
    _, number, arguments, _ = Lookup(table, parts["actions"], None)(key)
    action = parts["actions"][table["actions"][number]]["name"].rsplit(".", 1)[-1]
    return action.rsplit("_", 1)[0] if action[-1].isdigit() else action, arguments


@pytest.mark.parametrize(("predicate", "seen", "full"), DECISIONS)
def test_const_entries_are_the_reference(predicate: PhasePredicate, seen: bool, full: bool) -> None:
    decision = DECISIONS[predicate, seen, full]
    for bit in (1, 1 << 31) if seen else (0,):
        slot = {"phase_predicate": PHASE_PREDICATES[predicate], "seen": bit}
        expected = [decision.verdict] + ([] if decision.drop is None else [decision.drop])
        # Only for packets that were admitted and have the job's epoch.
        decide = partial(run_table, program(), "decision_table", admitted=1, verdict=0, full=int(full), **slot)
        assert list(decide(full_below=0)[1]) == expected
        if not full and predicate is not PhasePredicate.STALE:  # then the sum goes to the parent, if there is one
            assert list(decide(full_below=1)[1]) == [Verdict.FORWARDED]
        for register in ("slot_exponent", "slot_check", "slot_next"):
            assert run_table(program(), f"{register}.register_table", **slot)[0] in SUM_ACTIONS[decision.sums]
        for lane in range(0, values_per_packet(program()), 2):
            table = f"lanes_table_{lane}"
            run = partial(run_table, program(), table, **slot)
            # Values are combined like exponent, check and chunk, except the first values of a phase.
            assert run(has_values=1, filled_before=1)[0] in SUM_ACTIONS[decision.sums]
            first = "NoAction" if predicate is PhasePredicate.STALE else "overwrite"
            assert run(has_values=1, filled_before=0)[0] == first
            # A packet without values only reads.
            reads = predicate is PhasePredicate.SAME
            assert run(has_values=0, filled_before=1)[0] == ("fetch" if reads else "NoAction")
            assert run(has_values=0, filled_before=0)[0] == "NoAction"


@pytest.mark.parametrize("again", [False, True])
def test_const_entries_let_a_result_of_the_parent_replace_the_sum_once(again: bool) -> None:
    slot = {"phase_predicate": 4, "seen": 1 << 31 if again else 0}  # common/types.p4
    duplicate = [Verdict.DUPLICATE, DropReason.DUPLICATE]
    for full, first in ((0, Verdict.AGGREGATED), (1, Verdict.COMPLETED)):
        state = {"admitted": 1, "verdict": 0, "full": full, "full_below": 0}
        _, arguments = run_table(program(), "decision_table", **state, **slot)
        assert list(arguments) == (duplicate if again else [first])
    changes = "NoAction" if again else "overwrite"
    for register in ("slot_exponent", "slot_check", "slot_next"):
        assert run_table(program(), f"{register}.register_table", **slot)[0] == changes
    for lane in range(0, values_per_packet(program()), 2):
        run = partial(run_table, program(), f"lanes_table_{lane}", filled_before=0, **slot)
        assert (run(has_values=1)[0], run(has_values=0)[0]) == (changes, "NoAction")


@pytest.mark.parametrize(
    ("has_parent", "missing", "marks"),
    [(0, 0, (1, 0)), (0, 1 << 31, (0, 0)), (1, 1 << 31, (1, 0)), (1, 0, (0, 1)), (1, 1, (0, 0)), (1, 3 << 30, (0, 0))],
)
def test_const_entries_tell_what_is_missing(has_parent: int, missing: int, marks: tuple[int, int]) -> None:
    found = run_table(program(), "missing_table", has_parent=has_parent, bitmap=missing)
    assert found == ("mark", marks)


# ---- every state and every packet ------------------------------------------------------------------------------------


def stored_halves(job: Job, values: int) -> Iterator[Half]:
    """Yield all states of a half in small widths; epoch 0 is the content of unused registers."""
    pattern = tuple((0xFFFFFFF0 + 7 * lane) & 0xFFFFFFFF for lane in range(values))
    states = itertools.product((0, *EPOCHS), PHASES, range(job.mask + 1), (0, 255), (False, True))
    for epoch, phase, bitmap, exponent, filled in states:
        yield Half(epoch, phase, bitmap, exponent, 0xFFFFFFFE - bitmap, 0x80000000 >> bitmap, pattern, filled)


def packets(job: Job, values: int) -> Iterator[Packet]:
    """Yield all packets of the job's epoch that can arrive in such a state, and some of another epoch."""
    for phase, rank, exponent, empty in itertools.product(PHASES, range(job.ranks), (1, 256), (False, True)):
        pattern = () if empty else tuple(0x20 + rank + lane for lane in range(values))
        yield Packet(
            job=job.id,
            worker=rank,
            slot=job.base << 1 | phase & 1,
            phase=phase,
            epoch=job.epoch,
            values=pattern,
            count=len(pattern),
            exponent=exponent,
            chunk=0x40000000 if exponent == 1 else 0xFFFFFFFF,
            check=5 + rank,
            flags=Flag.WITHOUT_VALUES if empty else Flag(0),
        )


def contribution(packet: Packet) -> Contribution:
    values = None if packet.flags & Flag.WITHOUT_VALUES else unsigned(packet).values[:LANES]
    combined = (packet.exponent, packet.check, packet.chunk)
    return Contribution(packet.epoch, packet.phase, 1 << packet.worker, *combined, values)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_state_and_packet(chip: Chip, ranks: int) -> None:
    cases = 0
    for epoch in EPOCHS:
        job = chip.add_job(Job(ranks, ranks, epoch, base=0))
        contributions = list(packets(job, chip.values))
        frames = [chip.frame(job, packet) for packet in contributions]
        for stored in stored_halves(job, LANES):
            for packet, frame in zip(contributions, frames, strict=True):
                chip.store(packet.slot, stored)
                chip.store(packet.slot ^ 1, OTHER)
                chip.out.clear()
                chip.clear_counters(job)
                chip.pipeline.receive(packet.worker + 1, frame)
                after, decision = contribute(stored, contribution(packet), job.mask)
                case = f"{stored} then {packet}: {decision}"
                assert chip.load(packet.slot, LANES) == after, case
                assert chip.load(packet.slot ^ 1, 0) == OTHER, case
                assert chip.verdicts(job) == {decision.verdict: 1}, case
                assert chip.drops() == ({} if decision.drop is None else {decision.drop: 1}), case
                receivers: tuple[int, ...] = ()
                if decision.verdict is Verdict.COMPLETED:
                    receivers = tuple(range(ranks))
                elif decision.verdict is Verdict.RESENT:
                    receivers = (packet.worker,)
                # The omitted lanes are those of the packet, or whatever their containers hold.
                rest = packet.values[LANES:] or (LEFTOVER,) * (chip.values - LANES)
                result = result_of(packet, after, after.values + rest)
                assert chip.out == [chip.result(job, rank, result) for rank in receivers], case
                cases += 1
    assert cases == 2 * (3 * 4 * 2**ranks * 2 * 2) * (4 * ranks * 2 * 2)


def test_another_epoch_touches_nothing(chip: Chip) -> None:
    job = chip.add_job(Job(2, 2, epoch=1))
    for packet in packets(replace(job, epoch=2), chip.values):
        for stored in stored_halves(job, 0):
            chip.store(packet.slot, stored)
            chip.clear_counters(job)
            assert chip.send(job, packet) == []
            assert chip.load(packet.slot, 0) == stored
            assert chip.verdicts(job) == {Verdict.WRONG_EPOCH: 1}
            assert chip.drops() == {DropReason.WRONG_EPOCH: 1}


@pytest.mark.parametrize("phase", [0, 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1])
@pytest.mark.parametrize("stored", [0, 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1])
def test_phases_are_compared_without_a_sign(chip: Chip, stored: int, phase: int) -> None:
    job = chip.add_job(Job(2, 2, epoch=1))
    packet = Packet(job=2, worker=0, slot=phase & 1, phase=phase, epoch=1, flags=Flag.WITHOUT_VALUES)
    chip.store(phase & 1, Half(1, stored, 2))
    chip.clear_counters(job)
    chip.send(job, packet)
    verdict = Verdict.STALE if phase < stored else Verdict.AGGREGATED if phase > stored else Verdict.COMPLETED
    assert chip.verdicts(job) == {verdict: 1}


def test_the_register_names_are_those_of_the_program() -> None:
    assert f"{INGRESS}.slot_tag" in Chip().state.registers
