"""The stateful programs that the compiler wrote do what the register actions of the P4 source say.

Without a chip, both are executed, over all combinations of words near the ends of their ranges and of small
ones. The compiler's output is kept in p4/build (ptf_tests/tofino_emulator/assembly.py).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from ptf_tests.tofino_emulator.assembly import AssemblyError, StatefulAlu, extract, load, run
from ptf_tests.tofino_emulator.program import PROGRAM, load_program
from ptf_tests.tofino_emulator.register_actions import RegisterAction, register_actions
from studies.fpisa.compile import BUILD as STUDY

WORDS = ("lo", "hi")


@pytest.fixture(scope="module", params=[PROGRAM, STUDY / "fpisa.ir.json"], ids=["switchml", "fpisa"])
def program(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture(scope="module")
def actions(program: Path) -> list[RegisterAction]:
    return register_actions(load_program(program))


@pytest.fixture(scope="module")
def alus(program: Path) -> dict[str, StatefulAlu]:
    name = program.name.replace(".ir.", ".stateful.")
    return load(program.with_name(name).read_text(encoding="utf-8"))


# Exponent fields of floats, with the headroom of a mantissa. A register action that adds more headroom must not wrap.
PLACES = [place << 23 for place in (0, 1, 7, 8, 9, 15, 16, 127, 134, 135, 253, 254, 260, 261)]


def edges(width: int, register: str) -> list[int]:
    """Return the words of a width at which signs, carries and comparisons change, and a few small ones."""
    if register.endswith("slot_place"):
        return PLACES
    top, half = 1 << width, 1 << (width - 1)
    return sorted({one % top for one in (0, 1, 2, half - 1, half, half + 1, top - 2, top - 1)})


def same_field(ours: str, theirs: str) -> bool:
    """Compare names: the compiler calls the metadata what the source does."""
    return ours.partition(".")[2] == theirs.partition(".")[2]


def packet_words(action: RegisterAction, alu: StatefulAlu) -> dict[str, str]:
    """Return which of the packet's words each field is that the action reads."""
    words = {}
    for field in action.inputs:
        (words[field],) = (word for word, name in alu.inputs.items() if same_field(field, name))
    return words


def cases(action: RegisterAction, alu: StatefulAlu) -> list[tuple[tuple[int, ...], dict[str, int], dict[str, int]]]:
    """Return stored words, the packet's fields by name, and the packet's words; words that are not read are noise."""
    words = packet_words(action, alu)
    stored = itertools.product(*(edges(width, action.register) for width in action.widths))
    fields = itertools.product(*(edges(width, action.register) for width in action.inputs.values()))
    found = []
    for one, values in itertools.product(stored, list(fields)):
        named = dict(zip(action.inputs, values, strict=True))
        noise = {"phv_lo": 0x5A5A5A5A, "phv_hi": 0xA5A5A5A5}
        found.append((one, named, {**noise, **{words[field]: value for field, value in named.items()}}))
    return found


def program_of(action: RegisterAction, alu: StatefulAlu) -> tuple[object, ...]:
    """Return what two lanes have in common: their programs without the names."""
    fields = packet_words(action, alu)
    return (*alu.widths.items(), *sorted(fields.values()), *alu.actions[action.name], re.sub(r"\d+", "", action.name))


def test_every_register_action_does_what_its_source_says(
    actions: list[RegisterAction], alus: Mapping[str, StatefulAlu]
) -> None:
    compared: set[tuple[object, ...]] = set()
    count = 0
    for action in actions:
        alu = alus[action.register]
        assert tuple(alu.widths.values()) == action.widths
        # Lanes have the same program; a few cases tell whether their fields are where they should be.
        every = cases(action, alu)
        key = program_of(action, alu)
        for stored, named, words in every if key not in compared else every[:: len(every) // 16 + 1]:
            expected, result = action.apply(stored, named)
            after, output = run(alu, action.name, dict(zip(WORDS, stored, strict=False)), words)
            case = f"{action.register}, {action.name}: stored {stored}, packet {named}"
            assert tuple(after[word] for word in WORDS[: len(stored)]) == expected, case
            assert result is None or output == result, case
            count += 1
        compared.add(key)
    assert count > 10_000


def test_the_assembly_holds_no_other_program(actions: list[RegisterAction], alus: Mapping[str, StatefulAlu]) -> None:
    ours = {(action.register, action.name) for action in actions}
    assert {(name, action) for name, alu in alus.items() for action in alu.actions} == ours


# ---- the reader and the machine, on programs written by hand ---------------------------------------------------------

ASSEMBLY = """
stage 3 ingress:
  dependency: match
  stateful phase$salu:
    p4: { name: Ing.phase, size: 4096 }
    row: 15
    input_xbar:
      exact group 0: { 0: hdr.s.slot, 64: hdr.s.phase, 96: hdr.s.epoch.0-7, 104: hdr.s.epoch(8..15) }
    data_bytemask: 63
    format: { lo: 32, hi:32 }
    actions:
      enter:
      - neq lo, hi, -phv_hi
      - lss.u hi, lo, -phv_lo
      - alu_a (cmplo | cmphi), lo, phv_lo
      - alu_a cmplo, hi, phv_hi(0..15)
      - output alu_lo
      tell 7:
      - equ lo, lo, -phv_lo
      - output predicate
  stateful bits$salu:
    p4: { name: Ing.bits, size: 4096 }
    input_xbar:
      exact group 1: { 8: md.bit(8..15), 32: md.bit(0..7), 80: md.bit(16..31) }
      hash 2:
        8..15: md.bit(8..15)
        0..7: md.bit(0..7)
      hash 3:
        16..31: md.bit(16..31)
    hash_bytemask: 15
    format: { lo: 32 }
    actions:
      join:
      - and hi, lo, phv_lo
      - or lo, lo, phv_lo
      - output alu_hi
  ternary_match other 1:
    actions:
      enter:
      - set W0, 1
"""


def test_assembly_is_read_and_executed() -> None:
    alus = load(extract(ASSEMBLY))
    alu = alus["Ing.phase"]
    assert (alu.stage, alu.widths) == (3, {"lo": 32, "hi": 32})
    assert alu.inputs == {"phv_lo": "hdr.s.phase", "phv_hi": "hdr.s.epoch"}
    assert run(alu, "enter", {"lo": 5, "hi": 1}, {"phv_lo": 4, "phv_hi": 1}) == ({"lo": 5, "hi": 1}, 5)
    assert run(alu, "enter", {"lo": 5, "hi": 1}, {"phv_lo": 4, "phv_hi": 2}) == ({"lo": 4, "hi": 2}, 4)
    assert run(alu, "enter", {"lo": 5, "hi": 1}, {"phv_lo": 0x80000000, "phv_hi": 1})[1] == 0x80000000
    assert run(alu, "tell", {"lo": 5, "hi": 1}, {"phv_lo": 5, "phv_hi": 1})[1] == 0b0010
    assert run(alu, "tell", {"lo": 5, "hi": 1}, {"phv_lo": 6, "phv_hi": 1})[1] == 0b0001
    assert alus["Ing.bits"].inputs == {"phv_lo": "md.bit"}
    assert run(alus["Ing.bits"], "join", {"lo": 6}, {"phv_lo": 3}) == ({"lo": 7}, 2)


def test_what_is_not_understood_is_said() -> None:
    with pytest.raises(AssemblyError, match="no stateful table"):
        extract("stage 0 ingress:\n")
    alu = StatefulAlu("r", 0, {"lo": 32}, {}, {"a": ["frobnicate lo, lo, 1"], "b": ["alu_a lo, W7"]})
    with pytest.raises(AssemblyError, match="frobnicate"):
        run(alu, "a", {"lo": 1}, {})
    with pytest.raises(AssemblyError, match="W7"):
        run(alu, "b", {"lo": 1}, {})
    with pytest.raises(AssemblyError, match="bit 8 of phv_lo"):
        extract(ASSEMBLY.replace("8..15: md.bit(8..15)", "8..15: md.bit(0..7)"))
