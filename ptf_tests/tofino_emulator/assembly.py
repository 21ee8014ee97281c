"""The compiled register actions: the programs of the stateful ALUs, extracted from the compiler's assembly.

``extract`` converts them from a .bfa file to JSON that is small enough to keep; ``run`` executes them, so that they
can be compared with the P4 source. A stateful ALU first compares stored words with words of the packet; then it
computes the new stored words from the old ones; then it outputs one word (bf-asm, in p4c's back end).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["AssemblyError", "StatefulAlu", "extract", "load", "run"]

_STAGE = re.compile(r"^stage (\d+) (ingress|egress):")
_STATEFUL = re.compile(r"^  stateful (\S+):")
_P4_NAME = re.compile(r"^    p4: \{ name: ([^,}]+)")
_FORMAT = re.compile(r"^    format: \{(.*)\}")
_CROSSBAR = re.compile(r"^      exact group \d+: \{(.*)\}")
_HASHED = re.compile(r"^        (\d+)\.\.\d+: (.*)")
_MASK = re.compile(r"^    (data|hash)_bytemask: (\d+)")
_FIELD = re.compile(r"([\w.$]+?)(?:\.(\d+)-\d+)?(?:\((\d+)(?:\.\.\d+)?\))?")
_ACTION = re.compile(r"^      (\w+)(?:\s+\d+)?:\s*$")
_INSTRUCTION = re.compile(r"^      - (.*)$")
_FIRST_INPUT_BIT = 64  # on Tofino the words of the packet are in the upper half of the crossbar's group


class AssemblyError(Exception):
    """The assembly contains something unknown; the text says what."""


@dataclass
class StatefulAlu:
    """One register's programs: word widths (lo, then hi), the packet's words (phv_lo, then phv_hi), actions."""

    register: str
    stage: int
    widths: dict[str, int] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    actions: dict[str, list[str]] = field(default_factory=dict)


def extract(assembly: str) -> str:
    """Return the stateful programs of a .bfa file as JSON, one register per line, equal for equal programs.

    Raises:
        AssemblyError: the file is not understood.

    """
    alus = sorted(_parse(assembly), key=lambda alu: (alu.stage, alu.register))
    if not alus:
        raise AssemblyError("the assembly has no stateful table")
    return "[\n" + ",\n".join(json.dumps(vars(alu), separators=(",", ":")) for alu in alus) + "\n]\n"


def load(text: str) -> dict[str, StatefulAlu]:
    """Parse the output of ``extract``, and return the programs by the name of the register."""
    return {one["register"]: StatefulAlu(**one) for one in json.loads(text)}


def _parse(assembly: str) -> list[StatefulAlu]:
    readers: list[_Reader] = []
    stage, reader = 0, None
    for line in assembly.splitlines():
        if found := _STAGE.match(line):
            stage, reader = int(found[1]), None
        elif _STATEFUL.match(line):
            reader = _Reader(StatefulAlu("", stage))
            readers.append(reader)
        elif re.match(r"^  \S", line):
            reader = None
        elif reader is not None:
            reader.take(line)
    return [one.finish() for one in readers]


class _Reader:
    """Read the lines of one stateful table."""

    def __init__(self, alu: StatefulAlu) -> None:
        self._alu = alu
        self._section = self._action = ""
        self._masks = {"data": 0, "hash": 0}
        # Which field is at which bit: in the crossbar's upper half, and in the hash's output.
        self._places: dict[str, dict[int, str]] = {"data": {}, "hash": {}}

    def take(self, line: str) -> None:
        alu = self._alu
        if found := _P4_NAME.match(line):
            alu.register = found[1].strip()
        elif found := _FORMAT.match(line):
            alu.widths = {name: int(width) for name, width in _pairs(found[1])}
        elif found := _MASK.match(line):
            self._masks[found[1]] = int(found[2])
        elif found := re.match(r"^    (\w+):", line):
            self._section = found[1]
        elif self._section == "input_xbar":
            self._take_input(line)
        elif self._section == "actions" and (found := _INSTRUCTION.match(line)):
            alu.actions[self._action].append(found[1].strip())
        elif self._section == "actions" and (found := _ACTION.match(line)):
            self._action = found[1]
            alu.actions[self._action] = []

    def _take_input(self, line: str) -> None:
        if found := _CROSSBAR.match(line):
            for bit, name in _pairs(found[1]):
                self._places["data"][int(bit.partition("..")[0]) - _FIRST_INPUT_BIT] = name
        elif found := _HASHED.match(line):
            self._places["hash"][int(found[1])] = found[2].strip()

    def finish(self) -> StatefulAlu:
        """Record which field is which word, and check that each bit of a field is the same bit of the word."""
        alu = self._alu
        width = next(iter(alu.widths.values()))
        for source, places in self._places.items():
            for bit, text in places.items():
                if bit < 0 or not self._masks[source] >> bit // 8 & 1:
                    continue  # the crossbar carries it for another purpose
                word, offset = ("phv_lo", bit) if bit < width else ("phv_hi", bit - width)
                found = _FIELD.fullmatch(text)
                if found is None or int(found[2] or 0) + int(found[3] or 0) != offset:
                    raise AssemblyError(f"{alu.register}: bit {offset} of {word} is {text}")
                if alu.inputs.setdefault(word, found[1]) != found[1]:
                    raise AssemblyError(f"{alu.register}: {word} holds {alu.inputs[word]} and {found[1]}")
        return alu


def _pairs(text: str) -> list[tuple[str, str]]:
    pairs = [one.partition(":") for one in re.split(r",(?![^(]*\))", text) if one.strip()]
    return [(name.strip(), value.strip()) for name, _, value in pairs]


# ---- execution -------------------------------------------------------------------------------------------------------

_COMPARISONS = {
    "equ": lambda value: value == 0,
    "neq": lambda value: value != 0,
    "grt": lambda value: value > 0,
    "geq": lambda value: value >= 0,
    "lss": lambda value: value < 0,
    "leq": lambda value: value <= 0,
}


def _signed(value: int, width: int) -> int:
    half = 1 << (width - 1)
    return ((value & (2 * half - 1)) ^ half) - half


def _operate(name: str, operands: Sequence[int], width: int) -> int:
    """Return the result of an ALU's operation, not yet reduced to its width."""
    first, second = (*operands, 0, 0)[:2]
    if name in ("alu_a", "alu_b", "a", "b"):
        return first
    if name in ("nota", "notb", "not"):
        return ~first
    results = {
        "add": first + second,
        "sub": first - second,
        "subr": second - first,
        "saddu": min(first + second, (1 << width) - 1),
        "ssubu": max(first - second, 0),
        "minu": min(first, second),
        "maxu": max(first, second),
        "mins": min(_signed(first, width), _signed(second, width)),
        "maxs": max(_signed(first, width), _signed(second, width)),
        "setz": 0,
        "sethi": -1,
        "and": first & second,
        "or": first | second,
        "xor": first ^ second,
        "nand": ~(first & second),
        "nor": ~(first | second),
        "xnor": ~(first ^ second),
        "andca": ~first & second,
        "andcb": first & ~second,
        "orca": ~first | second,
        "orcb": first | ~second,
    }
    if name not in results:
        raise AssemblyError(f"the operation {name} is unknown")
    return results[name]


def _condition(text: str, holds: Mapping[str, bool]) -> bool:
    """Evaluate an expression of cmplo and cmphi with !, & and |."""
    if not re.fullmatch(r"[\s()!&|^]*(cmp(lo|hi)[\s()!&|^]*)+", text):
        raise AssemblyError(f"the predicate {text!r} is not understood")
    python = re.sub(r"!", " not ", text).replace("&", " and ").replace("|", " or ").replace("^", " != ")
    return bool(eval(python, {"__builtins__": {}}, dict(holds)))


def run(
    alu: StatefulAlu, action: str, memory: Mapping[str, int], packet: Mapping[str, int]
) -> tuple[dict[str, int], int]:
    """Execute an action on stored words (lo, hi) and packet words (phv_lo, phv_hi).

    Return the new stored words, and the output word (0 without an output). A word whose operation is not executed keeps
    its value, also in the output; the upper half of an ALU that stores only one word is 0 then.

    Raises:
        AssemblyError: an instruction is not understood.

    """
    holds = {"cmplo": False, "cmphi": False}
    split = [_split(text) for text in alu.actions[action]]
    for name, operands in split:
        kind, _, sign = name.partition(".")
        if kind in _COMPARISONS:
            holds[f"cmp{operands[0]}"] = _COMPARISONS[kind](_difference(alu, operands[1:], sign, memory, packet))
    after = {"hi": 0, **memory}
    written: set[str] = set()
    for name, operands in split:
        if name.partition(".")[0] in _COMPARISONS or name == "output":
            continue
        if operands[0] not in ("lo", "hi"):
            condition, *operands = operands
            if not _condition(condition, holds):
                continue
        target, *sources = operands
        if target in written:
            raise AssemblyError(f"{alu.register}, {action}: two results for {target}")
        written.add(target)
        width = alu.widths.get(target, alu.widths["lo"])
        values = [_word(alu, one, memory, packet) & ((1 << width) - 1) for one in sources]
        after[target] = _operate(name, values, width) & ((1 << width) - 1)
    return {word: after[word] for word in memory}, _output(split, holds, memory, packet, after)


def _split(text: str) -> tuple[str, list[str]]:
    name, _, rest = text.partition(" ")
    return name, [one.strip() for one in re.split(r",(?![^(]*\))", rest) if one.strip()]


def _word(alu: StatefulAlu, text: str, memory: Mapping[str, int], packet: Mapping[str, int]) -> int:
    if text in memory:
        return memory[text]
    if found := re.fullmatch(r"(phv_lo|phv_hi)(?:\(0\.\.(\d+)\))?", text):
        return packet[found[1]] & ((2 << int(found[2])) - 1 if found[2] else -1)
    try:
        return int(text, 0)
    except ValueError:
        raise AssemblyError(f"{alu.register}: the operand {text} is not understood") from None


def _difference(
    alu: StatefulAlu, operands: Sequence[str], sign: str, memory: Mapping[str, int], packet: Mapping[str, int]
) -> int:
    """Return the sum that a comparison tests; its operands are sign- or zero-extended according to their type."""
    width = max(alu.widths.values())
    total = 0
    for one in operands:
        text = one.removeprefix("-") if not re.fullmatch(r"-\d+", one) else one
        value = _word(alu, text, memory, packet)
        if sign == "s":
            value = _signed(value, width)
        total += -value if text != one else value
    return total


def _output(
    split: Sequence[tuple[str, list[str]]],
    holds: Mapping[str, bool],
    memory: Mapping[str, int],
    packet: Mapping[str, int],
    after: Mapping[str, int],
) -> int:
    for name, operands in split:
        if name != "output":
            continue
        *conditions, source = operands
        if conditions and not _condition(conditions[0], holds):
            return 0
        if source == "predicate":
            return 1 << (holds["cmplo"] + 2 * holds["cmphi"])
        unit, _, half = source.removesuffix("_out").partition("_")
        words: Mapping[str, Any] = {"mem": memory, "memory": memory, "alu": after}.get(unit, {})
        if unit == "phv":
            return packet[f"phv_{half}"]
        if half not in words:
            raise AssemblyError(f"the output {source} is not understood")
        return int(words[half])
    return 0
