import json
from pathlib import Path

import pytest

from ptf_tests.tofino_emulator.fixed_tables import FACTS, fixed_tables
from switchml.dataplane import bfruntime


def test_generated_files_are_fresh() -> None:
    pytest.importorskip("grpc_tools")
    from tools.generate.protos import BFRUNTIME, generate

    made = generate(BFRUNTIME)
    assert {path.name for path in made} == {"bfruntime_pb2.py", "bfruntime_pb2.pyi", "bfruntime_pb2_grpc.py"}
    stale = [path.name for path, text in made.items() if path.read_text() != text]
    assert not stale, "run python -m tools.generate protos"


def test_sources_and_licences_are_named() -> None:
    here = Path(bfruntime.__file__).parent
    facts = json.loads(FACTS.read_text())
    for text in ((here / "bfruntime.proto").read_text(), facts["source"] + facts["licence"]):
        assert "https://github.com/p4lang/open-p4studio" in text
        assert "Copyright (C) 2024 Intel Corporation" in text
        assert "Apache" in text


def test_the_fixed_tables_are_in_the_format_of_bfrt_json() -> None:
    for table in fixed_tables()["tables"]:
        assert table["table_type"]
        assert len({key["id"] for key in table["key"]}) == len(table["key"])
        assert len({field["singleton"]["id"] for field in table["data"]}) == len(table["data"])
