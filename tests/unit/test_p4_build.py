"""The files under dataplane/p4/build are the compiler's output for the current P4 sources."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from finsy import P4Schema
from google.protobuf.json_format import MessageToDict

from switchml import dataplane
from switchml.dataplane.compiler.compile_p4 import (
    COMPILER,
    TARGETS,
    VARIANTS,
    Variant,
    bmv2_text,
    compile_variant,
    compiler_version,
    digest_of_sources,
    find_stale,
    read_digest,
)
from switchml.dataplane.constants import PROTOCOL_MAX_JOBS, DropReason, Verdict

DATAPLANE = Path(dataplane.__file__).parent
BUILD = DATAPLANE / "p4" / "build"

each_variant = pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of constants.toml and p4/ that a test may change."""
    shutil.copy(DATAPLANE / "constants.toml", tmp_path)
    shutil.copytree(DATAPLANE / "p4", tmp_path / "p4")
    return tmp_path


def test_build_is_fresh() -> None:
    assert not find_stale(), "run python -m switchml.dataplane.compiler with --target bmv2 and --target tofino"


@pytest.mark.parametrize(
    ("name", "old", "new", "stale_targets"),
    [
        ("common/constants.p4", "FORMAT_INT32 = 1", "FORMAT_INT32 = 3", TARGETS),
        ("common/parser.p4", "hdr.udp.length", "hdr.udp.checksum", TARGETS),
        ("v1model/slot_next.p4", "// SlotNext holds", "// It holds", []),
        ("v1model/slot_next.p4", "stored < packet", "stored <= packet", ["bmv2"]),
        ("tna/slot_next.p4", "min(", "max(", ["tofino"]),
        ("common/constants.p4", "#define", "const bit<8> UNUSED = 1; // not in any program\n#define", []),
    ],
)
def test_changed_program_is_noticed(folder: Path, name: str, old: str, new: str, stale_targets: Sequence[str]) -> None:
    assert all(digest_of_sources(target, folder) == digest_of_sources(target) for target in TARGETS)
    source = folder / "p4" / name
    text = source.read_text()
    assert old in text
    source.write_text(text.replace(old, new))
    assert find_stale(folder) == [
        f"the P4 program has changed since it was compiled for {target}" for target in stale_targets
    ]


def test_changed_output_is_noticed(folder: Path) -> None:
    build = folder / "p4" / "build"
    (build / "bmv2" / "switchml.json").unlink()
    (build / "bmv2" / "switchml.p4info.txtpb").write_text("")
    (build / "bmv2" / "other.json").write_text("{}")
    (build / "tofino" / "bfrt.json").write_text("{}")
    assert find_stale(folder) == [
        "bmv2/other.json is not in digest.json",
        "bmv2/switchml.json is missing",
        "bmv2/switchml.p4info.txtpb was not made by this compilation",
        "tofino/bfrt.json was not made by this compilation",
    ]
    (build / "digest.json").write_text("{}")
    assert find_stale(folder) == ["digest.json does not list bmv2", "digest.json does not list tofino"]
    (build / "digest.json").unlink()
    assert find_stale(folder) == ["digest.json is missing"]


def test_common_knows_no_architecture() -> None:
    """A control in common/ works on every target: it includes no architecture and uses nothing specific to one."""
    extern = re.compile(
        r"#include\s*<|standard_metadata|mark_to_drop|\b(register|counter|direct_counter|random|hash|digest"
        r"|update_checksum|verify_checksum|RegisterAction|Register|Counter|DirectCounter|Random|Hash)\s*[<(]"
        r"|intr_md|port_metadata"
    )
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted((DATAPLANE / "p4" / "common").glob("*.p4"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if extern.search(line.split("//")[0])
    ]
    assert not found


@each_variant
def test_recompiling_gives_the_same_bytes(variant: Variant) -> None:
    version = compiler_version()
    if version is None:
        pytest.skip(f"{COMPILER} not found")
    outputs = compile_variant(variant)  # even a compiler of another version must accept the program
    if version != read_digest()["bmv2"]["compiler"]:
        pytest.skip(f"{version} found, the outputs were made by {read_digest()['bmv2']['compiler']}")
    for name, text in outputs.items():
        assert text == (BUILD / name).read_text(encoding="utf-8"), f"{name} is not what {version} makes"


@each_variant
def test_p4info_is_the_face_that_clients_expect(variant: Variant) -> None:
    schema = P4Schema(BUILD / "bmv2" / f"{variant.name}.p4info.txtpb")
    tables = {table.alias: table for table in schema.tables}
    assert {name: [(f.name, f.bitwidth) for f in table.match_fields] for name, table in tables.items()} == {
        "worker_table": [
            ("ingress_port", 9),
            ("eth_src", 48),
            ("ipv4_src", 32),
            ("udp_src", 32),
            ("kind", 8),
            ("job", 16),
            ("worker", 8),
            ("secret", 32),
            ("slot", 16),
        ],
        "job_table": [("job", 16)],
        "switch_address_table": [],
        "l2_table": [("eth_dst", 48)],
        "rank_table": [("job", 16), ("rank", 16)],
        "loss_ingress_table": [("port", 9)],
        "loss_egress_table": [("port", 9)],
    }
    assert {action.alias: [(p.name, p.bitwidth) for p in action.params] for action in schema.actions} == {
        "NoAction": [],
        "admit": [("worker_bit", 64), ("job_mask", 64), ("epoch", 16), ("group", 16)],
        "admit_below": [("worker_bit", 64), ("job_mask", 64), ("epoch", 16), ("group", 16)],
        "admit_parent": [("job_mask", 64), ("epoch", 16), ("group", 16), ("completed_here", 1)],
        "describe_job": [("slot_value", 16), ("slot_mask", 16)],
        "set_switch_address": [("mac", 48), ("ip", 32)],
        "forward": [("port", 9)],
        "flood": [("group", 16)],
        "drop_no_route": [],
        "address_rank": [("eth_dst", 48), ("ipv4_dst", 32), ("udp_dst", 16), ("ranks", 64)],
        "address_queue_pair": [("eth_dst", 48), ("ipv4_dst", 32), ("queue_pair", 24), ("ranks", 64)],
        "lose": [("threshold", 32)],
    }
    assert {tables[name].actions["lose"].id for name in ("loss_ingress_table", "loss_egress_table")} == {
        schema.actions["lose"].id
    }, "one action for both directions"
    annotations = {a.name: a.body for a in tables["worker_table"].annotations}
    streamed = {"switchml_streamed": None} if variant.values <= 128 else {}
    formats = {"switchml": "natural8 , dynamic8", "switchml_floats": "float32"}.get(variant.name)
    taken = {} if formats is None else {"switchml_formats": formats}
    of_all = {
        "switchml_values_per_packet": str(variant.values),
        "switchml_owned_results": None,
        "switchml_rocev2": None,
        "switchml_leaf": None,
    }
    assert annotations == {**of_all, **streamed, **taken}
    counters = {counter.alias: counter.size for counter in schema.counters}
    assert counters == {"drop_counter": 32, "job_counter": 16 * PROTOCOL_MAX_JOBS}
    assert max(DropReason) < counters["drop_counter"]
    assert max(Verdict) < 16
    direct_counter = tables["worker_table"].direct_counter
    assert direct_counter is not None
    assert direct_counter.alias == "worker_counter"

    registers = {r["preamble"]["alias"]: r for r in _registers(schema)}
    state = ["slot_epoch", "slot_phase", "slot_bitmap", "slot_filled", "slot_exponent", "slot_check", "slot_next"]
    state += ["slot_owner"]
    lanes = {f"lane_{i}": 32 for i in range(variant.values)}
    if variant.name == "switchml_floats":
        lanes |= {"slot_format": 8, **{f"float_{i}": 112 for i in range(variant.values)}}
    assert [*registers] == [*state, *lanes]
    assert {r["size"] for r in registers.values()} == {4096}
    widths = [r["typeSpec"]["bitstring"]["bit"]["bitwidth"] for r in registers.values()]
    assert widths == [16, 32, 64, 1, 16, 32, 32, 8, *lanes.values()]


def _registers(schema: P4Schema) -> list[dict[str, Any]]:
    registers: list[dict[str, Any]] = MessageToDict(schema.p4info)["registers"]
    return registers


@each_variant
def test_bmv2_json_names_no_place_in_the_source(variant: Variant) -> None:
    text = (BUILD / "bmv2" / f"{variant.name}.json").read_text(encoding="utf-8")
    assert "source_info" not in text
    assert json.loads(text)["program"] == "v1model/switchml.p4"
    assert bmv2_text(json.loads(text)) == text
    files = "|".join(source.stem for source in (DATAPLANE / "p4").glob("*/*.p4"))
    assert not re.search(rf'"(tbl_)?({files})\d+"', text), "a generated name has the number of a line"


def test_generated_names_do_not_change_with_the_lines_of_a_file() -> None:
    def compiled(first: int, second: int) -> str:
        actions = [{"name": f"loss{line}", "next": {f"loss{line}": f"tbl_loss{line}"}} for line in (first, second)]
        return bmv2_text({"actions": [*actions, {"name": "loss_draw7"}, {"name": "node_5"}, {"name": "csum16"}]})

    assert compiled(36, 64) == compiled(9, 101)
    actions = json.loads(compiled(36, 64))["actions"]
    assert actions[1] == {"name": "loss_2", "next": {"loss_2": "tbl_loss_2"}}
    assert [action["name"] for action in actions] == ["loss_1", "loss_2", "loss_draw_1", "node_5", "csum16"]
