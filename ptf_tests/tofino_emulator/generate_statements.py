"""Generate Python source for the short form's statements, tables and externs (import_statements.py)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ptf_tests.tofino_emulator.effects import targets
from ptf_tests.tofino_emulator.generate_expressions import ExpressionGenerator, identifier, wrapped
from ptf_tests.tofino_emulator.generate_headers import emission_text, extraction_lines
from ptf_tests.tofino_emulator.import_expressions import Expression
from ptf_tests.tofino_emulator.lookup import UNDEFINED_MATCH
from ptf_tests.tofino_emulator.undefined import ModelError

__all__ = ["PARSER_ERROR_PARTIAL_HEADER", "PORT_METADATA_BYTES", "Source", "StatementGenerator"]

PORT_METADATA_BYTES = 8
PARSER_ERROR_PARTIAL_HEADER = 0x0002
_WORDS = {"=": "assign"}


class Source:
    """Lines of Python with the place in the P4 source from which each comes."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.places: list[list[int]] = []
        self.place = [-1, 0]
        self._depth = 0

    def add(self, *lines: str) -> None:
        """Append lines at the current depth and place."""
        for line in lines:
            self.lines.append("    " * self._depth + line)
            self.places.append(self.place)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Append a line that opens a block, and indent what follows."""
        self.add(head)
        self._depth += 1
        length = len(self.lines)
        yield
        if len(self.lines) == length:
            self.add("pass")
        self._depth -= 1

    @property
    def text(self) -> str:
        """The source."""
        return "\n".join(self.lines) + "\n"


class StatementGenerator:
    """Write statements of one gress, with its variables."""

    def __init__(self, gress: str, parts: Mapping[str, Any], source: Source) -> None:
        self.gress, self.parts, self.source = gress, parts, source
        self._expression = ExpressionGenerator(self._hoist)
        self._temporaries = itertools.count()
        self._headers: dict[str, dict[str, int]] = parts["headers"]
        self._widths: dict[str, int] = dict(parts["variables"])
        for header, fields in self._headers.items():
            self._widths.update({f"{header}.{field}": width for field, width in fields.items()})
        self._header_of = {f"{header}.{field}": header for header, fields in self._headers.items() for field in fields}
        self._entry: str | None = None  # the variable of the matching entry, inside a table's action
        self._parser_error = f"{gress[:1]}g_prsr_md.parser_err"

    @property
    def variables(self) -> list[str]:
        """All variables, fields of headers included."""
        return list(self._widths)

    def width_of(self, name: str) -> int:
        """Return the width of a variable in bits."""
        return abs(self._widths[name])

    # ---- statements --------------------------------------------------------------------------------------------------

    def _statements(self, statements: Iterable[list[Any]]) -> None:
        for kind, *operands, place in statements:
            self.source.place = place
            getattr(self, f"_do_{_WORDS.get(kind, kind)}")(*operands)

    def _do_assign(self, target: Expression, value: Expression) -> None:
        if target is None:
            self._hoist(value)
            return
        name = target if isinstance(target, str) else target[1]
        text = self._expression(value)
        self._check_writable(name)
        variable = identifier(name)
        if not isinstance(target, str):
            _, _, high, low = target
            mask = (1 << (high - low + 1)) - 1
            text = f"({variable} & ~{mask << low} | ({text} & {mask}) << {low})"
        self.source.add(f"{variable} = {text}")

    def _check_writable(self, name: str) -> None:
        header = self._header_of.get(name)
        if header is not None:
            with self.source.block(f"if not valid_{identifier(header)}:"):
                self.source.add(f'raise ModelError("{name} is written, but its header is not valid")')

    def _do_if(self, condition: Expression, yes: list[Any], no: list[Any]) -> None:
        text = self._expression(condition)
        variables = targets([*yes, *no])
        word = "if"
        if variables is not None and isinstance(condition, list):
            # If only variables are set, they are afterwards as undefined as the condition is.
            outcome = self._temporary()
            self.source.add(f"{outcome} = {text}")
            with self.source.block(f"if type({outcome}) is Undefined:"):
                self.source.add(*(f"{identifier(name)} = {outcome}" for name in variables))
            word, text = "elif", outcome
        with self.source.block(f"{word} {text}:"):
            self._statements(yes)
        if no:
            with self.source.block("else:"):
                self._statements(no)

    def _do_validate(self, header: str, valid: bool) -> None:
        name = identifier(header)
        if not valid:
            self.source.add(f"valid_{name} = False")
            self._forget(header)
            return
        with self.source.block(f"if not valid_{name}:"):
            self.source.add(f"valid_{name} = True")
            self._forget(header)

    def _forget(self, header: str) -> None:
        for field in self._headers[header]:
            variable = identifier(f"{header}.{field}")
            self.source.add(f"{variable} = U_{variable}")

    def _do_copy(self, target: str, from_header: str, body: list[Any]) -> None:
        self.source.add(f"valid_{identifier(target)} = valid_{identifier(from_header)}")
        with self.source.block(f"if valid_{identifier(target)}:"):
            self._statements(body)
        with self.source.block("else:"):
            self._forget(target)

    def _do_invalidate(self, name: str) -> None:
        self.source.add(f"{identifier(name)} = U_{identifier(name)}")

    def _do_extract(self, header: str) -> None:
        fields = self._headers[header]
        size = sum(map(abs, fields.values()))
        if size % 8:
            raise ModelError(f"{header} has {size} bits, not whole bytes")
        source = self.source
        with source.block(f"if offset + {size // 8} > end:"):
            source.add(f"{identifier(self._parser_error)} |= {PARSER_ERROR_PARTIAL_HEADER}", "break")
        variables = [(identifier(f"{header}.{field}"), width) for field, width in fields.items()]
        source.add(*extraction_lines(variables), f"offset += {size // 8}", f"valid_{identifier(header)} = True")

    def _do_advance(self, bits: Expression) -> None:
        text = self._expression(bits)
        with self.source.block(f"if offset + ({text}) // 8 > end:"):
            self.source.add(f"{identifier(self._parser_error)} |= {PARSER_ERROR_PARTIAL_HEADER}", "break")
        self.source.add(f"offset += ({text}) // 8")

    def _do_port_metadata(self, fields: list[list[str]]) -> None:
        """Read the port metadata, which follows the intrinsic metadata; its layout is chosen by the compiler."""
        variables = "".join(f"{identifier(variable)}, " for variable, _ in fields)
        names = tuple(name for _, name in fields)
        self.source.add(f"{variables}= port_metadata({identifier('ig_intr_md.ingress_port')}, {names!r})")
        self.source.add(f"offset += {PORT_METADATA_BYTES}")

    def _do_emit(self, header: str) -> None:
        variables = [
            ("0" if f"{header}.{field}" in self.parts["padding"] else identifier(f"{header}.{field}"), width)
            for field, width in self._headers[header].items()
        ]
        with self.source.block(f"if valid_{identifier(header)}:"):
            self.source.add(f"out.append({emission_text(variables)})")

    def _do_count(self, counter: str, index: Expression, adjust: Expression) -> None:
        source = self.source
        extern = self.parts["externs"][counter]
        if index is None:
            if self._entry is None:
                raise ModelError(f"{extern['name']} is a direct counter, and counts outside its table")
            with source.block(f"if {self._entry} is not None:"):
                source.add(f"{self._entry}.packets += 1", f"{self._entry}.bytes += length - {self._expression(adjust)}")
            return
        cell = self._temporary()
        source.add(f"{cell} = {self._expression(index)}")
        self._check_index(cell, extern)
        source.add(f"{cell} = K_{identifier(counter)}[{cell}]", f"{cell}[0] += 1")
        source.add(f"{cell}[1] += length - {self._expression(adjust)}")

    def _check_index(self, variable: str, extern: Mapping[str, Any]) -> None:
        with self.source.block(f"if {variable} >= {extern['size']}:"):
            text = f"{extern['name']} has {extern['size']} entries, the index is {{}}"
            self.source.add(f"raise ModelError({text!r}.format({variable}))")

    def _temporary(self) -> str:
        return f"t{next(self._temporaries)}"

    # ---- tables and actions ------------------------------------------------------------------------------------------

    def _do_apply(self, table: str) -> None:
        self._apply(table)

    def _apply(self, name: str) -> str:
        """Write lookup and action; return the variable with the outcome: (hit, action, arguments, entry)."""
        source, place = self.source, self.source.place
        table = self.parts["tables"][name]
        found = self._temporary()
        keys = [self._expression(key[0]) for key in table["keys"]]
        source.add(
            f"{found}_key = ({''.join(f'{key}, ' for key in keys)})",
            f"{found} = C_{identifier(name)}.get({found}_key)",
        )
        with source.block(f"if {found} is None:"):
            source.add(f"{found} = T_{identifier(name)}({found}_key)")
        with source.block(f"if {found}[1] == {UNDEFINED_MATCH}:"):
            self._undefined_match(table, found)
        outer, self._entry = self._entry, f"{found}[3]"
        bodies = [
            (number, action) for number, action in enumerate(table["actions"]) if self.parts["actions"][action]["body"]
        ]
        for number, action in bodies:
            with source.block(f"elif {found}[1] == {number}:"):
                parameters = [identifier(variable) for variable, _ in self.parts["actions"][action]["parameters"]]
                if parameters:
                    source.add(f"{''.join(f'{one}, ' for one in parameters)}= {found}[2]")
                self._statements(self.parts["actions"][action]["body"])
        self._entry = outer
        source.place = place
        return found

    def _undefined_match(self, table: Mapping[str, Any], found: str) -> None:
        """Write the handling of a lookup whose outcome depends on an undefined value.

        The variables that its actions may set are then undefined as well, if the actions do nothing else.
        """
        sets = [targets(self.parts["actions"][action]["body"]) for action in table["actions"]]
        variables = [name for one in sets if one is not None for name in one]
        if None not in sets and not any(name in self._header_of for name in variables):
            self.source.add(*(f"{identifier(name)} = {found}[0]" for name in dict.fromkeys(variables)))
            return
        text = f"the entry of {table['name']} that matches depends on {{}}, which is not defined"
        self.source.add(f"raise ModelError({text!r}.format({found}[0].name))")

    def _do_switch(self, table: str, cases: list[Any], default: list[Any] | None) -> None:
        found = self._apply(table)
        with self.source.block(f"if {found}[1] == {UNDEFINED_MATCH}:"):
            self.source.add(f"{found}[0].fail()")
        actions: list[str] = self.parts["tables"][table]["actions"]
        word = "if"
        for labels, body in cases:
            numbers = ", ".join(str(actions.index(label)) for label in labels)
            with self.source.block(f"{word} {found}[1] in ({numbers},):"):
                self._statements(body)
            word = "elif"
        if default is not None:
            with self.source.block("else:" if cases else "if True:"):
                self._statements(default)

    def _do_do(self, action: str, passed: list[Expression]) -> None:
        parameters = self.parts["actions"][action]["parameters"]
        for (variable, _), value in zip(parameters, passed, strict=True):
            self.source.add(f"{identifier(variable)} = {self._expression(value)}")
        outer, self._entry = self._entry, None
        self._statements(self.parts["actions"][action]["body"])
        self._entry = outer

    # ---- calls with a value ------------------------------------------------------------------------------------------

    def _hoist(self, expression: list[Any]) -> str:
        kind, *operands = expression
        method = getattr(self, f"_call_{kind}", None)
        if method is None:
            raise ModelError(f"{kind} is not modelled here")
        text: str = method(*operands)
        return text

    def _call_hit(self, table: str) -> str:
        return f"{self._apply(table)}[0]"

    def _call_execute(self, name: str, index: Expression) -> str:
        action = self.parts["externs"][name]
        register_name = action["register"]
        register = self.parts["externs"][register_name]
        source, place = self.source, self.source.place
        cell = self._touch(register_name, register, index)
        cells = f"R_{identifier(register_name)}"
        values = [
            (identifier(one), width) for one, width in zip(action["values"], register["fields"].values(), strict=True)
        ]
        single = "" in register["fields"]
        slots = (
            [f"{cells}[{cell}]"]
            if single
            else [f"{cell}_pair[F_{identifier(register_name)}_{n}]" for n in range(len(values))]
        )
        if not single:
            source.add(f"{cell}_pair = {cells}[{cell}]")
        for (variable, width), slot in zip(values, slots, strict=True):
            source.add(f"{variable} = {slot if width > 0 else wrapped(slot, width)}")
        result = action["result"]
        if result is not None:
            source.add(f"{identifier(result)} = U_{identifier(result)}")
        self._statements(action["body"])
        source.place = place
        for (variable, width), slot in zip(values, slots, strict=True):
            with source.block(f"if type({variable}) is Undefined:"):
                source.add(f"{variable}.fail()")
            source.add(f"{slot} = {variable if width > 0 else f'{variable} & {(1 << -width) - 1}'}")
        return "None" if result is None else identifier(result)

    def _touch(self, name: str, register: Mapping[str, Any], index: Expression) -> str:
        """Write the checks of an access to a register; return the variable of the index."""
        source = self.source
        with source.block(f"if touched_{identifier(name)}:"):
            source.add(f'raise ModelError("{register["name"]} is accessed twice by one packet")')
        source.add(f"touched_{identifier(name)} = True")
        cell = self._temporary()
        source.add(f"{cell} = {self._expression(index)}")
        self._check_index(cell, register)
        return cell

    def _call_get(self, name: str, fields: list[list[Any]] | None = None) -> str:
        extern = self.parts["externs"][name]
        if extern["kind"] != "Hash" or fields is None:
            raise ModelError(f"{extern['name']}: this use of {extern['kind']} is not modelled")
        return f"hash_value({extern['algorithm']!r}, {extern['width']}, {self._field_tuple(fields)})"

    def _call_update(self, name: str, fields: list[list[Any]], zeros_as_ones: Expression = False) -> str:
        del name
        return f"internet_checksum({self._field_tuple(fields)}, {self._expression(zeros_as_ones)})"

    def _field_tuple(self, fields: list[list[Any]]) -> str:
        return f"({''.join(f'({self._expression(value)}, {abs(width) or 1}), ' for value, width in fields)})"

    def _call_lookahead(self, width: int) -> str:
        size = (width + 7) // 8
        with self.source.block(f"if offset + {size} > end:"):
            self.source.add(f"{identifier(self._parser_error)} |= {PARSER_ERROR_PARTIAL_HEADER}", "break")
        return f"(int.from_bytes(data[offset:offset + {size}], 'big') >> {8 * size - width})"
