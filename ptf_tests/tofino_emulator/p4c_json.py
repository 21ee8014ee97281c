"""The JSON of p4c's intermediate representation: nodes, types, names and places in the source."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, TypeAlias

__all__ = ["Document", "ImportRefused", "Node", "Places"]

Node: TypeAlias = dict[str, Any]


class ImportRefused(Exception):
    """The P4 program uses something that the model does not support; the text says what, and where."""


# Members that make up most of a dump and are not needed.
_LEFT_OUT = frozenset(("attributes", "base", "declarations", "declid", "methods", "source_fragment", "substituted"))


class Document:
    """A program as p4c dumped it. A node that occurs again is dumped as its number only: ``get`` resolves it.

    The dump may have hundreds of megabytes, so nodes are removed from the text as they are read.
    """

    def __init__(self, text: str) -> None:
        self._nodes: dict[int, Node] = {}
        root = json.loads(text, object_hook=self._take)
        root = self.get(root)
        self.objects: list[Node] = self.vector(self.get(root["objects"]))
        self.declared: dict[str, Node] = {node["name"]: node for node in self.objects if "name" in node}

    def padding(self, type_node: Node) -> list[str]:
        """Return the fields of a struct or header that are only padding, and so may hold anything."""
        fields = self.children(self.type_of(type_node), "fields")
        return [one["name"] for one in fields if self.annotation(one, "padding") is not None]

    def _take(self, node: Node) -> Node:
        """Store a node's contents by its number, and leave the number in place of the node."""
        number = node.get("Node_ID")
        if number is None:
            return {key: value for key, value in node.items() if key not in _LEFT_OUT}
        if len(node) > 1 and number not in self._nodes:
            self._nodes[number] = {key: value for key, value in node.items() if key not in _LEFT_OUT}
        return {"Node_ID": number}

    def get(self, node: Node) -> Node:
        """Return the node with its contents."""
        return self._nodes.get(node.get("Node_ID", -1), node)

    def child(self, node: Node, name: str) -> Node:
        """Return the node that is one field of another; an empty one if it is absent."""
        found = node.get(name)
        return {} if found is None else self.get(found)

    def children(self, node: Node, *names: str) -> list[Node]:
        """Return the elements of the vector that these fields lead to."""
        for name in names:
            node = self.child(node, name)
        return self.vector(node)

    def vector(self, node: Node) -> list[Node]:
        """Return the elements of a vector, which may be wrapped."""
        for key in ("vec", "parameters", "components"):
            inner = node.get(key)
            if isinstance(inner, list):
                return [self.get(one) for one in inner]
            if isinstance(inner, dict):
                return self.vector(self.get(inner))
        return []

    def arguments(self, call: Node) -> list[Node]:
        """Return the expressions that a call passes."""
        return [self.child(one, "expression") for one in self.children(call, "arguments")]

    def annotation(self, node: Node, name: str) -> str | None:
        """Return the string in an annotation of a declaration, or None if it has no such annotation."""
        for one in self.children(node, "annotations"):
            if one["name"] == name:
                texts = self.vector(self.get(one["body"]["value"]))
                return str(texts[0].get("value", "")) if texts else ""
        return None

    def type_of(self, node: Node) -> Node:
        """Return the declaration of a type, or the type itself if it is not declared (bits, bool)."""
        kind = node.get("Node_Type")
        if kind == "Type_Name":
            name = self.child(node, "path")["name"]
            return self.type_of(self.declared[name])
        if kind in ("Type_Typedef", "Type_Newtype"):
            return self.type_of(self.child(node, "type"))
        if kind in ("Type_Specialized", "Type_SpecializedCanonical"):
            return self.child(node, "baseType")
        return node

    def width(self, type_node: Node) -> int:
        """Return a scalar type as a number: bits of bit<>, minus the bits of int<>, 0 for bool."""
        found = self.type_of(type_node)
        kind = found.get("Node_Type")
        if kind == "Type_Bits":
            return -int(found["size"]) if found["isSigned"] else int(found["size"])
        if kind == "Type_Boolean":
            return 0
        raise ImportRefused(f"a value of type {kind} {found.get('name', '')}: only bit<>, int<> and bool are known")

    def fields(self, type_node: Node) -> Iterator[tuple[str, Node]]:
        """Yield name and type of each field of a struct or header."""
        for one in self.children(self.type_of(type_node), "fields"):
            yield one["name"], self.type_of(self.child(one, "type"))


class Places:
    """Source files in the order of their occurrence, so that a place is two small numbers."""

    def __init__(self) -> None:
        self.files: list[str] = []

    def of(self, node: Node) -> list[int]:
        """Return [file, line]; [-1, 0] for code that the compiler generated."""
        source = node.get("Source_Info")
        if source is None:
            return [-1, 0]
        name = _without_machine(source["filename"])
        if name not in self.files:
            self.files.append(name)
        return [self.files.index(name), source["line"]]

    def text(self, node: Node) -> str:
        """Return a place as text for a message."""
        file, line = self.of(node)
        return "somewhere" if file < 0 else f"{self.files[file]}:{line}"


def _without_machine(name: str) -> str:
    """Return a file's name relative to the compiler's directory, or its bare name if it is elsewhere."""
    name = posixpath.normpath(name)
    return PurePosixPath(name).name if name.startswith(("/", "..")) else name
