"""Translate one gress of a program to Python source: a function that takes a packet from parser to deparser.

Every field is a local variable of that function, so a packet costs some hundred microseconds. The names that it uses
(tables, externs, checksums) are put into the function's globals by ``program.py``:

    T_*  lookup of a table            C_*  its cache          R_*  a register's cells      K_*  a counter's cells
    U_*  the undefined value of a field       S_*  membership of a value set
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ptf_tests.tofino_emulator.effects import mentions
from ptf_tests.tofino_emulator.generate_expressions import identifier
from ptf_tests.tofino_emulator.generate_statements import Source, StatementGenerator

__all__ = ["GressGenerator"]

PARSER_ERROR_NO_MATCH = 0x0001
_DESTINATIONS = ("ig_tm_md.ucast_egress_port", "ig_tm_md.mcast_grp_a", "ig_tm_md.mcast_grp_b")


class GressGenerator(StatementGenerator):
    """Write ``def ingress(data, length)`` or ``def egress(data, length)``.

    ``data`` begins with the intrinsic metadata that precedes a packet; ``length`` is the length that is counted. The
    function returns None for a packet that is dropped, or (frame, values of ``results``).
    """

    def __init__(self, gress: str, parts: Mapping[str, Any], source: Source, results: Iterable[str]) -> None:
        super().__init__(gress, parts, source)
        self._results = tuple(results)
        # These exist in the hardware even if the program's blocks do not take them as parameters.
        for name in (self._parser_error, f"{gress[:1]}g_dprsr_md.drop_ctl", *self._results, *_DESTINATIONS):
            self._widths.setdefault(name, 16)

    def write(self) -> None:
        """Write the function."""
        source = self.source
        with source.block(f"def {self.gress}(data, length):"):
            self._prologue()
            self._parser()
            self._statements(self.parts["control"])
            self._end()

    def write_register_action(self, name: str) -> list[str]:
        """Write ``def register_action(stored, packet)`` alone: words in, (words, result) out.

        ``packet`` gives the fields that it reads by name, in the order that is returned.
        """
        action = self.parts["externs"][name]
        source = self.source
        own = {*action["values"], action["result"]}
        inputs = sorted(one for one in self._widths if one not in own and mentions(action["body"], name=one))
        with source.block("def register_action(stored, packet):"):
            source.add(*(f"{identifier(one)} = packet[{one!r}]" for one in inputs))
            source.add(f"{''.join(f'{identifier(one)}, ' for one in action['values'])}= stored")
            if action["result"] is not None:
                source.add(f"{identifier(action['result'])} = 0")
            self._statements(action["body"])
            words = "".join(f"{identifier(one)}, " for one in action["values"])
            source.add(f"return ({words}), {'None' if action['result'] is None else identifier(action['result'])}")
        return inputs

    # ---- beginning and end -------------------------------------------------------------------------------------------

    def _prologue(self) -> None:
        for name in self._widths:
            self.source.add(f"{identifier(name)} = U_{identifier(name)}")
        for header in self._headers:
            self.source.add(f"valid_{identifier(header)} = False")
        for name, extern in self.parts["externs"].items():
            if extern["kind"] == "Register":
                self.source.add(f"touched_{identifier(name)} = False")
        self.source.add(f"{identifier(self._parser_error)} = 0", "offset = 0", "end = len(data)", "out = []")
        self.source.add("leftovers = []")

    def _end(self) -> None:
        drop = identifier(f"{self.gress[:1]}g_dprsr_md.drop_ctl")
        for wish in ("mirror_type", "digest_type", "resubmit_type"):
            name = f"{self.gress[:1]}g_dprsr_md.{wish}"
            if name in self._widths:
                with self.source.block(f"if type({identifier(name)}) is int:"):
                    self.source.add(f'raise ModelError("{name} is set, which is not modelled")')
        with self.source.block(f"if type({drop}) is int and {drop} & 1:"):
            self.source.add("return None")
        wanted = "".join(f"{identifier(name)}, " for name in self._results)
        if self.gress == "ingress":
            # No destination: the deparser's output would be discarded.
            unset = " and ".join(f"type({identifier(name)}) is not int" for name in _DESTINATIONS)
            with self.source.block(f"if {unset}:"):
                self.source.add("return None")
        self._statements(self.parts["deparser"])
        self.source.add("out.append(data[offset:])", f"return b''.join(out), ({wanted}), leftovers")

    # ---- parser ------------------------------------------------------------------------------------------------------

    def _parser(self) -> None:
        states: dict[str, Any] = self.parts["states"]
        numbers = {name: number for number, name in enumerate(("start", *(one for one in states if one != "start")))}
        source = self.source
        source.add("state = 0")
        with source.block("while True:"):
            for name, number in numbers.items():
                with source.block(f"if state == {number}:"):
                    self._statements(states[name]["body"])
                    self._transition(states[name], numbers)
        if not mentions(self.parts["control"], self.parts["actions"], self.parts["tables"], name=self._parser_error):
            # A pipeline that does not test the error never receives such a packet.
            with source.block(f"if {identifier(self._parser_error)} != 0:"):
                source.add("return None")

    def _transition(self, state: Mapping[str, Any], numbers: Mapping[str, int]) -> None:
        source = self.source
        if "next" in state:
            self._go_to(state["next"], numbers)
            return
        for number, expression in enumerate(state["select"]):
            source.add(f"key_{number} = {self._expression(expression)}")
        for sets, target in state["cases"]:
            tests = [
                test for number, one in enumerate(sets) if (test := self._membership(f"key_{number}", one)) is not None
            ]
            if not tests:
                self._go_to(target, numbers)
                return
            with source.block(f"if {' and '.join(tests)}:"):
                self._go_to(target, numbers)
        source.add(f"{identifier(self._parser_error)} |= {PARSER_ERROR_NO_MATCH}", "break")

    def _go_to(self, target: str, numbers: Mapping[str, int]) -> None:
        if target == "reject":
            self.source.add(f"{identifier(self._parser_error)} |= {PARSER_ERROR_NO_MATCH}")
        if target in numbers:
            self.source.add(f"state = {numbers[target]}", "continue")
        else:
            self.source.add("break")

    @staticmethod
    def _membership(key: str, keyset: Any) -> str | None:
        if keyset is None:
            return None
        if isinstance(keyset, int):
            return f"{key} == {keyset}"
        kind, *values = keyset
        if kind == "mask":
            return f"{key} & {values[1]} == {values[0] & values[1]}"
        if kind == "range":
            return f"{values[0]} <= {key} <= {values[1]}"
        return f"S_{identifier(values[0])}({key})"
