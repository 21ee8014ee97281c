"""Convert expressions of p4c's intermediate representation to the model's short form.

An expression is a constant (int or bool), the name of a variable (str), or a list: the operator and its operands.
Widths are given if the value depends on them: bits of bit<>, minus the bits of int<>, 0 for bool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ptf_tests.tofino_emulator.p4c_json import Document, ImportRefused, Node, Places

__all__ = ["Expression", "ExpressionImporter", "Names"]

Expression: TypeAlias = Any
Names: TypeAlias = dict[str, str]
"""The first part of a variable's name in the model, by the name in the source of one block."""

_WITH_WIDTH = {"Add": "+", "Sub": "-", "Mul": "*", "Shl": "<<"}
_PLAIN = {
    "Equ": "==",
    "Neq": "!=",
    "Lss": "<",
    "Leq": "<=",
    "Grt": ">",
    "Geq": ">=",
    "BAnd": "&",
    "BOr": "|",
    "BXor": "^",
    "Shr": ">>",
    "LAnd": "and",
    "LOr": "or",
}
_SATURATING = {"AddSat": "|+|", "SubSat": "|-|"}


class ExpressionImporter:
    """Expressions of one block; ``names`` gives its parameters and locals, ``calls`` the conversion of method calls."""

    def __init__(
        self, document: Document, places: Places, names: Names, calls: Callable[[Node, str, str, Node], Expression]
    ) -> None:
        self.document, self.places, self.names = document, places, names
        self._calls = calls

    def refuse(self, node: Node, what: str) -> ImportRefused:
        """Return the error for a node that cannot be imported."""
        return ImportRefused(f"{self.places.text(node)}: {what}")

    def path(self, node: Node) -> str:
        """Return the variable, header or struct that a path names."""
        if node["Node_Type"] == "PathExpression":
            name = self.document.child(node, "path")["name"]
            return str(self.names.get(name, name))
        if node["Node_Type"] == "Member":
            return f"{self.path(self.document.child(node, 'expr'))}.{node['member']}"
        raise self.refuse(node, f"{node['Node_Type']} where a variable is expected")

    def width(self, node: Node) -> int:
        """Return the width of an expression."""
        return self.document.width(self.document.child(node, "type"))

    def __call__(self, node: Node) -> Expression:
        """Return the expression in short form. Raises ImportRefused."""
        kind = node["Node_Type"]
        if kind in ("Constant", "BoolLiteral"):
            return node["value"]
        if kind == "PathExpression":
            return self.path(node)
        if kind == "Member":
            return self._member(node)
        if kind == "MethodCallExpression":
            return self._call(node)
        sides = [self(self.document.child(node, side)) for side in ("left", "right", "expr") if side in node]
        if kind in _WITH_WIDTH:
            return [_WITH_WIDTH[kind], self.width(node), *sides]
        if kind in _SATURATING:
            return [_SATURATING[kind], self.width(node), *sides]
        if kind in _PLAIN:
            return [_PLAIN[kind], *sides]
        if kind == "LNot":
            return ["not", *sides]
        if kind in ("Neg", "Cmpl"):
            return ["neg" if kind == "Neg" else "~", self.width(node), *sides]
        return self._structured(node, kind)

    def _structured(self, node: Node, kind: str) -> Expression:
        child = self.document.child
        if kind == "Cast":
            operand = child(node, "expr")
            return ["cast", self.width(operand), self.document.width(child(node, "destType")), self(operand)]
        if kind == "Slice":
            high, low = child(node, "e1")["value"], child(node, "e2")["value"]
            return ["slice", self(child(node, "e0")), high, low]
        if kind == "Concat":
            right = child(node, "right")
            return ["++", self(child(node, "left")), self.width(right), self(right)]
        if kind == "Mux":
            return ["mux", *(self(child(node, name)) for name in ("e0", "e1", "e2"))]
        raise self.refuse(node, f"an expression of kind {kind}")

    def fields(self, node: Node) -> list[Expression]:
        """Return [expression, width] for each element of a tuple, list or struct expression, or one value."""
        kind = node["Node_Type"]
        if kind in ("ListExpression", "StructExpression"):
            parts = self.document.children(node, "components")
            if kind == "StructExpression":
                parts = [self.document.child(one, "expression") for one in parts]
            return [one for part in parts for one in self.fields(part)]
        found = self.document.type_of(self.document.child(node, "type"))
        if found.get("Node_Type") in ("Type_Header", "Type_Struct"):
            path = self.path(node)
            return [[f"{path}.{name}", self.document.width(one)] for name, one in self.document.fields(found)]
        return [[self(node), self.width(node)]]

    def _member(self, node: Node) -> Expression:
        inner = self.document.child(node, "expr")
        if inner["Node_Type"] == "MethodCallExpression":
            method = self.document.child(inner, "method")
            if method["Node_Type"] == "Member" and method["member"] == "apply" and node["member"] in ("hit", "miss"):
                hit = ["hit", self.path(self.document.child(method, "expr"))]
                return hit if node["member"] == "hit" else ["not", hit]
        if inner["Node_Type"] == "TypeNameExpression":
            return f"{self.document.child(self.document.child(inner, 'typeName'), 'path')['name']}.{node['member']}"
        return self.path(node)

    def _call(self, node: Node) -> Expression:
        method = self.document.child(node, "method")
        if method["Node_Type"] != "Member":
            return self._calls(node, "", self.path(method), method)
        target = self.document.child(method, "expr")
        name = method["member"]
        if target["Node_Type"] == "This":
            return self._calls(node, "this", name, target)
        if name == "isValid":
            return ["valid", self.path(target)]
        return self._calls(node, self.path(target), name, target)
