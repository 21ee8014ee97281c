"""Convert statements, tables and externs of one block of a TNA program (parser, control or deparser) to short form."""

from __future__ import annotations

from typing import Any

from ptf_tests.tofino_emulator.import_expressions import Expression, ExpressionImporter, Names
from ptf_tests.tofino_emulator.p4c_json import Document, ImportRefused, Node, Places

__all__ = ["BlockImporter"]

_HEADER = "Type_Header"


class BlockImporter:
    """Import one block into the parts of its gress: variables, headers, externs, actions, tables."""

    def __init__(self, document: Document, places: Places, gress: dict[str, Any], role: str, names: Names) -> None:
        self.document, self.places, self.gress, self.role = document, places, gress, role
        self.names = dict(names)
        self.expression = ExpressionImporter(document, places, self.names, self._value_of_call)

    # ---- declarations ------------------------------------------------------------------------------------------------

    def declare(self, name: str, type_node: Node) -> None:
        """Declare a variable: each header and each scalar in it becomes a variable of the model."""
        found = self.document.type_of(type_node)
        kind = found.get("Node_Type")
        if kind == _HEADER:
            self.gress["headers"][name] = {
                field: self.document.width(one) for field, one in self.document.fields(found)
            }
            padding = [f"{name}.{field}" for field in self.document.padding(found)]
            self.gress["padding"] += [one for one in padding if one not in self.gress["padding"]]
        elif kind == "Type_Struct":
            for field, one in self.document.fields(found):
                self.declare(f"{name}.{field}", one)
        else:
            self.gress["variables"][name] = self.document.width(found)

    def declare_locals(self, block: Node, member: str) -> None:
        """Import the declarations inside a parser or control."""
        nodes = self.document.children(block, member)
        for node in nodes:
            self.names[node["name"]] = f"{self.role}.{node['name']}"
        for node in nodes:
            kind = node["Node_Type"]
            if kind == "Declaration_Variable":
                self.declare(self.names[node["name"]], self.document.child(node, "type"))
            elif kind == "Declaration_Instance":
                self.gress["externs"][self.names[node["name"]]] = self._extern(node)
            elif kind == "P4ValueSet":
                widths = [width for _, width in self._keys_of_type(self.document.child(node, "elementType"))]
                self.gress["value_sets"][self.names[node["name"]]] = {"name": self.full_name(node), "widths": widths}
            elif kind not in ("P4Action", "P4Table"):
                raise ImportRefused(f"{self.places.text(node)}: a declaration of kind {kind}")
        for node in nodes:
            if node["Node_Type"] == "P4Action":
                self._action(node)
        for node in nodes:
            if node["Node_Type"] == "P4Table":
                self.gress["tables"][self.names[node["name"]]] = self._table(node)

    def full_name(self, node: Node) -> str:
        """Return the name in the control plane, without ``pipe.``."""
        name = self.document.annotation(node, "name")
        return (node["name"] if name is None else name).lstrip(".")

    def _keys_of_type(self, type_node: Node) -> list[tuple[str, int]]:
        found = self.document.type_of(type_node)
        if found.get("Node_Type") == "Type_Struct":
            return [(name, self.document.width(one)) for name, one in self.document.fields(found)]
        return [("", self.document.width(found))]

    def _extern(self, node: Node) -> dict[str, Any]:
        type_node = self.document.child(node, "type")
        base = self.document.child(type_node, "baseType") if "baseType" in type_node else type_node
        kind = self.document.child(base, "path")["name"]
        types = self.document.children(type_node, "arguments") if "baseType" in type_node else []
        passed = self.document.arguments(node)
        extern: dict[str, Any] = {"kind": kind, "name": self.full_name(node)}
        if kind == "Register":
            initial = [value for value, _ in self.expression.fields(passed[1])] if len(passed) > 1 else []
            fields = dict(self._keys_of_type(types[0]))
            extern.update(size=passed[0]["value"], fields=fields, initial=initial or [0] * len(fields))
        elif kind == "RegisterAction":
            extern.update(
                self._register_action(node, types, self.names[self.document.child(passed[0], "path")["name"]])
            )
        elif kind == "Counter":
            extern.update(size=passed[0]["value"], type=self.expression(passed[1]).split(".")[-1])
        elif kind == "DirectCounter":
            extern.update(type=self.expression(passed[0]).split(".")[-1])
        elif kind == "Hash":
            extern.update(algorithm=self.expression(passed[0]).split(".")[-1], width=self.document.width(types[0]))
            if len(passed) > 1:
                raise ImportRefused(f"{self.places.text(node)}: a Hash with a custom polynomial")
        elif kind == "Random":
            extern.update(width=self.document.width(types[0]))
        elif kind != "Checksum":
            raise ImportRefused(f"{self.places.text(node)}: the extern {kind} is not modelled")
        return extern

    def _register_action(self, node: Node, types: list[Node], register: str) -> dict[str, Any]:
        functions = self.document.children(self.document.child(node, "initializer"), "components")
        function = next(one for one in functions if one["name"] == "apply")
        parameters = self.document.children(self.document.child(function, "type"), "parameters")
        prefix = self.names[node["name"]]
        added = {one["name"]: f"{prefix}.{one['name']}" for one in parameters}
        saved, self.expression.names = self.expression.names, {**self.names, **added}
        self.names, outer = self.expression.names, self.names
        for one in parameters:
            self.declare(added[one["name"]], self.document.child(one, "type"))
        body = self.statements(self.document.child(function, "body"))
        self.names, self.expression.names = outer, saved
        variable = added[parameters[0]["name"]]
        values = [f"{variable}.{name}" if name else variable for name, _ in self._keys_of_type(types[0])]
        result = added[parameters[1]["name"]] if len(parameters) > 1 else None
        return {
            "register": register,
            "values": values,
            "result": result,
            "width": self.document.width(types[2]) if len(types) > 2 else None,
            "body": body,
        }

    # ---- actions and tables ------------------------------------------------------------------------------------------

    def _action(self, node: Node) -> None:
        name = self.names[node["name"]]
        parameters = self.document.children(self.document.child(node, "parameters"), "parameters")
        inside = {one["name"]: f"{name}.{one['name']}" for one in parameters}
        outer, self.names = self.names, {**self.names, **inside}
        saved, self.expression.names = self.expression.names, self.names
        for one in parameters:
            self.declare(inside[one["name"]], self.document.child(one, "type"))
        self.gress["actions"][name] = {
            "name": self.full_name(node),
            "parameters": [[inside[one["name"]], self.full_name(one)] for one in parameters],
            "body": self.statements(self.document.child(node, "body")),
        }
        self.names, self.expression.names = outer, saved

    def _action_call(self, node: Node) -> list[Any]:
        """Return [action, arguments] of an action that is named with or without arguments."""
        if node["Node_Type"] == "PathExpression":
            return [self.expression.path(node), []]
        method = self.expression.path(self.document.child(node, "method"))
        return [method, [self.expression(one) for one in self.document.arguments(node)]]

    def _table(self, node: Node) -> dict[str, Any]:
        properties = {one["name"]: one for one in self.document.children(node, "properties", "properties")}
        table: dict[str, Any] = {
            "name": self.full_name(node),
            "keys": [],
            "entries": None,
            "counter": None,
            "size": None,
        }
        key = properties.get("key")
        for one in self.document.children(self.document.child(key, "value"), "keyElements") if key else []:
            expression = self.document.child(one, "expression")
            name = self.document.annotation(one, "name")
            match = self.document.child(self.document.child(one, "matchType"), "path")["name"]
            table["keys"].append(
                [self.expression(expression), match, name, abs(self.expression.width(expression)) or 1]
            )
        actions = self.document.children(self.document.child(properties["actions"], "value"), "actionList")
        table["actions"] = [self._action_call(self.document.child(one, "expression"))[0] for one in actions]
        default = self.document.child(self.document.child(properties["default_action"], "value"), "expression")
        table["default"] = self._action_call(default)
        if "counters" in properties:
            counter = self.document.child(self.document.child(properties["counters"], "value"), "expression")
            table["counter"] = self.expression.path(counter)
        if "size" in properties:
            size = self.document.child(self.document.child(properties["size"], "value"), "expression")
            table["size"] = size["value"]
        if "entries" in properties:
            entries = self.document.child(properties["entries"], "value")
            table["entries"] = [self._entry(one, table["keys"]) for one in self.document.children(entries, "entries")]
        return table

    def _entry(self, node: Node, keys: list[Any]) -> list[Any]:
        """Return [key sets, action, arguments]; of const entries the first match wins."""
        sets = self.document.children(self.document.child(node, "keys"), "components")
        action, passed = self._action_call(self.document.child(node, "action"))
        if len(sets) != len(keys):
            raise ImportRefused(f"{self.places.text(node)}: {len(sets)} key sets for {len(keys)} keys")
        return [[self.keyset(one) for one in sets], action, passed]

    def keyset(self, node: Node) -> Any:
        """Return an int, ["mask", value, mask], ["range", low, high], ["set", name] or None for anything."""
        kind = node["Node_Type"]
        if kind == "DefaultExpression":
            return None
        if kind in ("Mask", "Range"):
            left, right = (self.expression(self.document.child(node, side)) for side in ("left", "right"))
            return [kind.lower(), left, right]
        value = self.expression(node)
        if value in self.gress["value_sets"]:
            return ["set", value]
        if not isinstance(value, int):
            raise ImportRefused(f"{self.places.text(node)}: a key set that is not constant")
        return int(value)

    # ---- statements --------------------------------------------------------------------------------------------------

    def statements(self, node: Node) -> list[Any]:
        """Return a statement, or those of a block, in short form."""
        kind = node.get("Node_Type")
        if kind is None or kind == "EmptyStatement":
            return []
        if kind == "BlockStatement":
            return self.sequence(self.document.children(node, "components"))
        child = self.document.child
        place = self.places.of(node)
        if kind == "AssignmentStatement":
            return self._assignment(child(node, "left"), child(node, "right"), place)
        if kind == "IfStatement":
            branches = [self.statements(child(node, "ifTrue")), self.statements(child(node, "ifFalse"))]
            return [["if", self.expression(child(node, "condition")), *branches, place]]
        if kind == "MethodCallStatement":
            return self._call(child(node, "methodCall"), place)
        if kind == "SwitchStatement":
            return [self._switch(node, place)]
        raise ImportRefused(f"{self.places.text(node)}: a statement of kind {kind}")

    def sequence(self, nodes: list[Node]) -> list[Any]:
        """Return statements one after the other; declarations among them are added to the block."""
        body = []
        for node in nodes:
            if node["Node_Type"] == "Declaration_Variable":
                self.names[node["name"]] = f"{self.role}.{node['name']}"
                self.declare(self.names[node["name"]], self.document.child(node, "type"))
            else:
                body += self.statements(node)
        return body

    def _assignment(self, left: Node, right: Node, place: list[int]) -> list[Any]:
        found = self.document.type_of(self.document.child(left, "type"))
        kind = found.get("Node_Type")
        if kind in (_HEADER, "Type_Struct"):
            return self._copy(self.expression.path(left), found, right, place)
        if left["Node_Type"] == "Slice":
            high, low = (self.document.child(left, name)["value"] for name in ("e1", "e2"))
            target: Expression = ["slice", self.expression.path(self.document.child(left, "e0")), high, low]
        else:
            target = self.expression.path(left)
        return [["=", target, self.expression(right), place]]

    def _copy(self, target: str, type_node: Node, right: Node, place: list[int]) -> list[Any]:
        """Convert the assignment of a struct or header to assignments of its fields."""
        if right["Node_Type"] == "MethodCallExpression":
            if self.expression(right) != ["port_metadata"]:
                raise ImportRefused(f"{self.places.text(right)}: a call that returns a struct")
            fields = [[f"{target}.{name}", name] for name, _ in self.document.fields(type_node)]
            return [["port_metadata", fields, place]]
        if right["Node_Type"] in ("ListExpression", "StructExpression"):
            names = [name for name, _ in self.document.fields(type_node)]
            values = self.expression.fields(right)
            body = [["=", f"{target}.{name}", value, place] for name, (value, _) in zip(names, values, strict=True)]
        else:
            source = self.expression.path(right)
            body = []
            for name, inner in self.document.fields(type_node):
                if inner.get("Node_Type") in (_HEADER, "Type_Struct"):
                    raise ImportRefused(f"{self.places.text(right)}: a struct of structs is assigned as a whole")
                body.append(["=", f"{target}.{name}", f"{source}.{name}", place])
            if type_node.get("Node_Type") == _HEADER:
                return [["copy", target, source, body, place]]
        if type_node.get("Node_Type") == _HEADER:
            body.insert(0, ["validate", target, True, place])
        return body

    def _switch(self, node: Node, place: list[int]) -> list[Any]:
        run = self.document.child(node, "expression")
        inner = self.document.child(run, "expr")
        if run["Node_Type"] != "Member" or run["member"] != "action_run":
            raise ImportRefused(f"{self.places.text(node)}: a switch over anything but action_run")
        table = self.expression.path(self.document.child(self.document.child(inner, "method"), "expr"))
        cases: list[Any] = []
        labels: list[str] = []
        default: list[Any] | None = None
        for case in self.document.children(node, "cases"):
            label = self.document.child(case, "label")
            is_default = label["Node_Type"] == "DefaultExpression"
            if not is_default:
                labels.append(self.expression.path(label))
            if case.get("statement") is None:
                continue  # falls through to the next label
            body = self.statements(self.document.child(case, "statement"))
            if is_default:
                default = body
            else:
                cases.append([labels, body])
            labels = []
        return ["switch", table, cases, default, place]

    def _call(self, node: Node, place: list[int]) -> list[Any]:
        method = self.document.child(node, "method")
        passed = self.document.arguments(node)
        if method["Node_Type"] != "Member":
            return self._function_statement(self.expression.path(method), passed, node, place)
        target, name = self.document.child(method, "expr"), method["member"]
        path = self.expression.path(target)
        if name in ("setValid", "setInvalid"):
            return [["validate", path, name == "setValid", place]]
        if name == "apply":
            return [["apply", path, place]]
        if name == "advance":
            return [["advance", self.expression(passed[0]), place]]
        if name in ("extract", "emit"):
            if len(passed) != 1:
                raise ImportRefused(f"{self.places.text(node)}: {name} with {len(passed)} arguments")
            return [[name, self.expression.path(passed[0]), place]]
        if name == "execute":
            return [["=", None, self.expression(node), place]]
        if name == "count":
            return [["count", path, *self._count_arguments(path, passed), place]]
        if name in ("add", "subtract"):
            return [["checksum", path, name, self.expression.fields(passed[0]), place]]
        if name == "subtract_all_and_deposit":
            return [["checksum", path, name, self.expression.path(passed[0]), place]]
        if name == "write":
            return [["=", None, ["write", path, *(self.expression(one) for one in passed)], place]]
        raise ImportRefused(f"{self.places.text(node)}: the method {name} of {path} is not modelled")

    def _count_arguments(self, path: str, passed: list[Node]) -> list[Expression]:
        """Return the index (None for a direct counter) and the number to subtract from the bytes."""
        values = [self.expression(one) for one in passed]
        if self.gress["externs"][path]["kind"] == "DirectCounter":
            return [None, *(values or [0])]
        return [values[0], *(values[1:] or [0])]

    def _function_statement(self, name: str, passed: list[Node], node: Node, place: list[int]) -> list[Any]:
        if name in self.gress["actions"]:
            return [["do", name, [self.expression(one) for one in passed], place]]
        if name == "invalidate":
            return [["invalidate", self.expression.path(passed[0]), place]]
        raise ImportRefused(f"{self.places.text(node)}: the function {name} is not modelled")

    def _value_of_call(self, node: Node, target: str, name: str, method: Node) -> Expression:
        del method
        passed = self.document.arguments(node)
        if target == "" and name in ("max", "min"):
            return [name, *(self.expression(one) for one in passed)]
        if target == "" and name == "port_metadata_unpack":
            return ["port_metadata"]
        if target == "" and name in ("sizeInBytes", "sizeInBits"):
            bits = sum(width for _, width in self.expression.fields(passed[0]))
            return bits // 8 if name == "sizeInBytes" else bits
        if name == "predicate":
            return ["predicate", *(self.expression(one) for one in passed)]
        if name in ("get", "update") and passed:
            return [name, target, self.expression.fields(passed[0]), *(self.expression(one) for one in passed[1:])]
        if name in ("get", "verify"):
            return [name, target]
        if name in ("execute", "read"):
            return [name, target, *(self.expression(one) for one in passed)]
        if name == "lookahead":
            return ["lookahead", self.expression.width(node)]
        raise ImportRefused(f"{self.places.text(node)}: the call of {name} on {target or 'nothing'} is not modelled")
