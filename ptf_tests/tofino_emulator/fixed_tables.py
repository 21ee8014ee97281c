"""The tables that every Tofino has, in the format of bfrt.json; fixed_tables.json names the sources of the facts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["FACTS", "fixed_tables"]

FACTS = Path(__file__).with_name("fixed_tables.json")


def fixed_tables() -> dict[str, Any]:
    """Return the document as a switch would send it, with the fields that are used here."""
    facts = json.loads(FACTS.read_text(encoding="utf-8"))
    return {"schema_version": "1.0.0", "tables": [_table(table) for table in facts["tables"]]}


def _table(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": table["name"],
        "id": table["id"],
        "table_type": table["table_type"],
        "size": table["size"],
        "key": [{**_field(key), "mandatory": True, "match_type": "Exact"} for key in table["key"]],
        "data": [
            {
                "mandatory": field.get("mandatory", False),
                "read_only": field.get("read_only", False),
                "singleton": _field(field),
            }
            for field in table["data"]
        ],
        "supported_operations": [],
        "attributes": table["attributes"],
    }


def _field(field: Mapping[str, Any]) -> dict[str, Any]:
    kind = {"type": field["type"], **({"choices": field["choices"]} if "choices" in field else {})}
    repeated = field.get("repeated", False)
    return {"id": field["id"], "name": field["name"], "repeated": repeated, "annotations": [], "type": kind}
