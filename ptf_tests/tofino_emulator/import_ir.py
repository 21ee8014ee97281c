"""Convert p4c's dump (``--toJSON``) to the model's program: small, equal on every machine, free of machine paths.

``python -m ptf_tests.tofino_emulator.import_ir DUMP.json`` prints it. The dump is that of the middle end without the
passes in ``EXCLUDED_PASSES``, so that tables and statements are those of the source.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ptf_tests.tofino_emulator.import_statements import BlockImporter
from ptf_tests.tofino_emulator.p4c_json import Document, ImportRefused, Node, Places

__all__ = ["EXCLUDED_PASSES", "FORMAT", "ImportRefused", "import_program", "program_text"]

FORMAT = 1
EXCLUDED_PASSES = (
    "SynthesizeActions",
    "MoveActionsToTables",
    "GlobalCopyPropagation",
    "FlattenInterfaceStructs",
    "FlattenHeaders",
    "EliminateTuples",
    "SimplifyKey",
)

_INTRINSIC = {
    "ingress_intrinsic_metadata_t": "ig_intr_md",
    "ingress_intrinsic_metadata_for_tm_t": "ig_tm_md",
    "ingress_intrinsic_metadata_from_parser_t": "ig_prsr_md",
    "ingress_intrinsic_metadata_for_deparser_t": "ig_dprsr_md",
    "egress_intrinsic_metadata_t": "eg_intr_md",
    "egress_intrinsic_metadata_from_parser_t": "eg_prsr_md",
    "egress_intrinsic_metadata_for_deparser_t": "eg_dprsr_md",
    "egress_intrinsic_metadata_for_output_port_t": "eg_oport_md",
}
_PACKET = ("packet_in", "packet_out")


def import_program(dump: str) -> dict[str, Any]:
    """Return the program in the model's form; ``dump`` is the text of p4c's file.

    Raises:
        ImportRefused: it is not a TNA program of one pipe, or uses something that the model does not support.

    """
    document = Document(dump)
    places = Places()
    blocks = _blocks(document)
    program: dict[str, Any] = {"format": FORMAT, "files": places.files}
    for gress, (parser, control, deparser) in {"ingress": blocks[:3], "egress": blocks[3:]}.items():
        program[gress] = _gress(document, places, parser, control, deparser)
    return program


def program_text(program: dict[str, Any]) -> str:
    """Return the program as JSON with one line for each table, action, extern and statement."""
    return _text(program, 0) + "\n"


def _text(value: Any, depth: int) -> str:
    if depth < 3 and isinstance(value, dict) and value:
        parts = [f"{json.dumps(key)}:{_text(one, depth + 1)}" for key, one in value.items()]
        return "{\n" + ",\n".join(parts) + "\n}"
    if depth < 3 and isinstance(value, list) and value and isinstance(value[0], list):
        return "[\n" + ",\n".join(_text(one, 3) for one in value) + "\n]"
    return json.dumps(value, separators=(",", ":"))


def _blocks(document: Document) -> list[Node]:
    """Return the six blocks of the pipe, in the order of the package Pipeline."""
    if "main" not in document.declared:
        raise ImportRefused("the program has no main")
    pipes = document.arguments(document.declared["main"])
    if len(pipes) != 1:
        raise ImportRefused(f"the program has {len(pipes)} pipes: only one is modelled")
    pipe = pipes[0]
    if pipe["Node_Type"] == "PathExpression":
        pipe = document.declared[document.child(pipe, "path")["name"]]
    names = [document.child(document.child(one, "constructedType"), "path")["name"] for one in document.arguments(pipe)]
    if len(names) != 6:
        raise ImportRefused(f"the pipe has {len(names)} blocks, not the six of TNA's Pipeline")
    return [document.declared[name] for name in names]


def _gress(document: Document, places: Places, parser: Node, control: Node, deparser: Node) -> dict[str, Any]:
    gress: dict[str, Any] = {
        "parser_name": parser["name"],
        "padding": [],
        **{part: {} for part in ("headers", "variables", "value_sets", "externs", "actions", "tables", "states")},
    }
    importer = _importer(document, places, gress, "parser", parser)
    importer.declare_locals(parser, "parserLocals")
    states = [one for one in document.children(parser, "states") if one["name"] not in ("accept", "reject")]
    gress["states"] = {one["name"]: _state(importer, one) for one in states}
    for role, block in (("control", control), ("deparser", deparser)):
        importer = _importer(document, places, gress, role, block)
        importer.declare_locals(block, "controlLocals")
        gress[role] = importer.statements(document.child(block, "body"))
    return gress


def _importer(document: Document, places: Places, gress: dict[str, Any], role: str, block: Node) -> BlockImporter:
    """Return the importer of a block; its parameters are named by their roles in the architecture."""
    parameters = document.children(document.child(block, "type"), "applyParams")
    names: dict[str, str] = {}
    types: dict[str, Node] = {}
    own = iter(("hdr", "md"))
    for one in parameters:
        type_node = document.child(one, "type")
        type_name = document.child(type_node, "path").get("name") if "path" in type_node else type_node.get("name")
        if type_name in _PACKET:
            names[one["name"]] = "packet"
            continue
        name = _INTRINSIC.get(str(type_name)) or next(own)
        names[one["name"]] = name
        types[name] = type_node
    importer = BlockImporter(document, places, gress, role, names)
    for name, type_node in types.items():
        importer.declare(name, type_node)
    return importer


def _state(importer: BlockImporter, node: Node) -> dict[str, Any]:
    document = importer.document
    body = importer.sequence(document.children(node, "components"))
    select = document.child(node, "selectExpression")
    if not select:
        return {"body": body, "next": "reject"}
    if select["Node_Type"] == "PathExpression":
        return {"body": body, "next": document.child(select, "path")["name"]}
    expressions = [importer.expression(one) for one in document.children(select, "select", "components")]
    cases = []
    for case in document.children(select, "selectCases"):
        keyset = document.child(case, "keyset")
        parts = document.children(keyset, "components") if keyset["Node_Type"] == "ListExpression" else [keyset]
        sets = [importer.keyset(one) for one in parts]
        if sets == [None]:
            sets = [None] * len(expressions)
        cases.append([sets, document.child(document.child(case, "state"), "path")["name"]])
    return {"body": body, "select": expressions, "cases": cases}


if __name__ == "__main__":
    sys.stdout.write(program_text(import_program(Path(sys.argv[1]).read_text(encoding="utf-8"))))
