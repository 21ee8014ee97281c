"""The Tofino program's resources, the parts that it shares with BMv2's program, and its driver's schema."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from studies.fpisa import compile as fpisa
from switchml import dataplane
from switchml.dataplane.compiler import compile_tofino
from switchml.dataplane.compiler.compile_p4 import read_digest
from switchml.dataplane.compiler.p4_lines import count_lines
from switchml.dataplane.compiler.tofino_report import (
    BudgetError,
    Figure,
    Report,
    Stage,
    check_budget,
    markdown_lines,
    read_budget,
    read_report,
    report_lines,
)
from switchml.dataplane.constants import PROTOCOL_MAX_JOBS, DropReason

P4 = Path(dataplane.__file__).parent / "p4"
BUILD = P4 / "build" / "tofino"


def checked_in(build: Path = BUILD, program: str = "switchml") -> Report:
    resources = json.loads((build / f"{program}.resources.json").read_text(encoding="utf-8"))
    return Report(
        {name: Figure(**figure) for name, figure in resources["figures"].items()},
        [Stage(**stage) for stage in resources["stages"]],
    )


def tables() -> dict[str, dict[str, Any]]:
    schema = json.loads((BUILD / "bfrt.json").read_text(encoding="utf-8"))
    return {table["name"].removeprefix("pipe."): table for table in schema["tables"]}


def test_program_keeps_its_budget() -> None:
    report = checked_in()
    check_budget(report, read_budget(P4 / compile_tofino.BUDGET))
    assert report.figures["ingress_stages"] == Figure(12, 12)


def test_no_limit_of_the_budget_is_above_what_the_chip_has() -> None:
    budget = read_budget(P4 / compile_tofino.BUDGET)
    for name, figure in checked_in().figures.items():
        assert figure.available is None or budget[name] <= figure.available, name


def test_a_passed_limit_is_an_error() -> None:
    budget = {"ingress_stages": 12, "sram_blocks": 100}
    report = Report({"ingress_stages": Figure(12, 12), "sram_blocks": Figure(100, 960)}, [])
    check_budget(report, budget)
    with pytest.raises(BudgetError, match=r"sram_blocks is 101, the limit 100$"):
        check_budget(replace(report, figures={**report.figures, "sram_blocks": Figure(101, 960)}), budget)
    with pytest.raises(BudgetError, match=r"map_rams has no limit; power is not in the report$"):
        check_budget(replace(report, figures={**report.figures, "map_rams": Figure(1, 2)}), {**budget, "power": 1})


def test_printed_report_names_every_figure_and_stage() -> None:
    report = checked_in()
    lines = report_lines(report, read_budget(P4 / compile_tofino.BUDGET))
    assert len(lines) == 1 + len(report.figures) + 2 + len(report.stages)
    assert "ingress stages              12      12      12" in lines


def test_readme_shows_the_figures_of_the_program() -> None:
    shown = {
        P4.parent: (checked_in(), read_budget(P4 / compile_tofino.BUDGET)),
        fpisa.PROGRAM.folder: (checked_in(fpisa.BUILD, "fpisa"), {}),
    }
    for folder, (figures, budget) in shown.items():
        table = "\n".join(markdown_lines(figures, budget))
        assert table in (folder / "README.md").read_text(encoding="utf-8"), f"it should hold\n{table}"


def test_the_study_of_fpisa_is_fresh() -> None:
    recorded = json.loads((fpisa.BUILD / "digest.json").read_text(encoding="utf-8"))
    assert {name: text for name, text in recorded.items() if name != "compiler"} == fpisa.digests(), (
        "run python -m studies.fpisa.compile"
    )


def test_report_is_read_from_the_reports_of_the_compiler(tmp_path: Path) -> None:
    """Return the reports of a two-stage program, in the form of p4c 9.13; only used resources are counted."""
    stage = {
        "meter_alus": {"meters": [{"row": 1}, {"row": 3}], "nAlus": 4},
        "rams": {"srams": [{}, {}, {}], "nRows": 8, "nColumns": 10},
        "map_rams": {"maprams": [{}], "nRows": 8, "nUnits": 6},
        "tcams": {"tcams": [], "nRows": 12, "nColumns": 2},
        "logical_tables": {"ids": [{}] * 5, "size": 16},
    }
    resources = {
        "mau": {"nStages": 12, "mau_stages": [{"stage_number": 0, **stage}, {"stage_number": 1, **stage}]},
        "parser": {
            "parsers": [
                {"gress": gress, "parser_id": parser, "nStates": 256, "states": [{}] * rows}
                for gress, rows in (("ingress", 7), ("egress", 2))
                for parser in (0, 1)
            ]
        },
        "phv_containers": {"normal": [{"width": 32, "units": 64}], "tagalong": [{"width": 8, "units": 32}]},
    }
    part = {"stage_number": 1}
    reports = {
        "context.json": {
            "tables": [
                {"direction": "ingress", "match_attributes": {"stage_tables": [part]}},
                {"direction": "egress", "match_attributes": {"stage_tables": [{"stage_number": 0}]}},
                {"direction": "ingress"},
            ]
        },
        "logs/resources.json": {"resources": resources},
        "logs/phv.json": {
            "containers": [
                {"container_type": "normal", "bit_width": 32},
                {"container_type": "normal", "bit_width": 32},
                {"container_type": "tagalong", "bit_width": 8},
            ]
        },
        "logs/power.json": {
            "total_latency": [{"gress": "ingress", "latency": 50}, {"gress": "egress", "latency": 40}],
            "total_power": [{"power": 1.5}, {"power": 0.25}],
        },
    }
    (tmp_path / "logs").mkdir()
    for name, content in reports.items():
        (tmp_path / name).write_text(json.dumps(content))
    report = read_report(tmp_path)
    assert report.stages == [Stage(0, 2, 3, 1, 0, 5), Stage(1, 2, 3, 1, 0, 5)]
    assert report.figures == {
        "ingress_stages": Figure(2, 12),
        "egress_stages": Figure(1, 12),
        "stateful_alus": Figure(4, 48),
        "sram_blocks": Figure(6, 960),
        "map_rams": Figure(2, 576),
        "tcam_blocks": Figure(0, 288),
        "logical_tables": Figure(10, 192),
        "phv_32_bit": Figure(2, 64),
        "tagalong_8_bit": Figure(1, 32),
        "ingress_parser_rows": Figure(7, 256),
        "egress_parser_rows": Figure(2, 256),
        "ingress_latency": Figure(50, None),
        "egress_latency": Figure(40, None),
        "power": Figure(1750, None),
    }


def test_most_of_the_program_is_shared() -> None:
    lines = count_lines()
    assert lines["tofino"].shared_percent >= 60
    assert lines["bmv2"].shared_percent >= 60


def test_lines_are_counted_once_and_without_comments(tmp_path: Path) -> None:
    for folder in ("common", "v1model", "tna"):
        (tmp_path / folder).mkdir()
    (tmp_path / "common" / "types.p4").write_text("// A comment.\n\nconst bit<8> A = 1;  // one\nconst bit<8> B = 2;\n")
    (tmp_path / "common" / "unused.p4").write_text("const bit<8> C = 3;\n")
    entry = '#include "../common/types.p4"\n#include "arch.p4"\n'
    for folder in ("v1model", "tna"):
        (tmp_path / folder / "switchml.p4").write_text(entry)
        (tmp_path / folder / "arch.p4").write_text('#include "../common/types.p4"\n' * (1 + (folder == "tna")))
    lines = count_lines(tmp_path)
    assert {target: (one.shared, one.own) for target, one in lines.items()} == {"bmv2": (2, 3), "tofino": (2, 4)}


def test_bfrt_schema_is_the_face_that_the_driver_expects() -> None:
    found = tables()
    keys = {
        name: [(key["name"], key["match_type"]) for key in table["key"]]
        for name, table in found.items()
        if table["table_type"] == "MatchAction_Direct"
    }
    assert keys == {
        "SwitchMLIngress.worker_table": [
            *(
                (name, "Exact")
                for name in ("ingress_port", "eth_src", "ipv4_src", "udp_src", "kind", "job", "worker", "secret")
            ),
            ("slot", "Ternary"),
            ("$MATCH_PRIORITY", "Exact"),
        ],
        "SwitchMLIngress.job_table": [("job", "Exact")],
        "SwitchMLIngress.switch_address_table": [],
        "SwitchMLIngress.l2_table": [("eth_dst", "Exact")],
        "SwitchMLEgress.rank_table": [("job", "Exact"), ("rank", "Exact")],
    }
    sizes = {name: table["size"] for name, table in found.items() if table["table_type"] == "Counter"}
    assert sizes == {
        "SwitchMLIngress.job_counter": 16 * PROTOCOL_MAX_JOBS,
        "SwitchMLIngress.drop_counter": 256,
        "SwitchMLEgress.drop_counter": 256,
    }
    assert max(DropReason) < 256
    ports = found["SwitchMLIngressParser.$PORT_METADATA"]
    assert [key["name"] for key in ports["key"]] == ["ig_intr_md.ingress_port"]
    fields = {field["singleton"]["name"] for field in ports["data"]}
    assert {"recirculation_port", "is_recirculated"} <= fields
    registers = [name for name, table in found.items() if table["table_type"] == "Register"]
    assert {f"SwitchMLIngress.lanes_{lane}_{lane + 1}" for lane in range(0, 64, 2)} < {*registers}
    assert {found[name]["size"] for name in registers} == {4096}


def test_faults_of_the_compiler_in_the_parser_are_noticed() -> None:
    assembly = (
        "\nparser ingress:\n  parser_error: H1\n  states:\n    start:\n      match: [ half ]\n"
        "      0x0800:\n        next: end\ndeparser ingress:\nparser egress:\n      match: [ byte0 ]\n"
    )
    compile_tofino.check_parser(assembly)
    with pytest.raises(compile_tofino.TofinoCompileError, match="a parser without select keys"):
        compile_tofino.check_parser(assembly.replace("      match: [ half ]\n", ""))
    with pytest.raises(compile_tofino.TofinoCompileError, match="a container of 16 bits"):
        compile_tofino.check_parser(assembly.replace("H1", "W3"))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("build", [BUILD, fpisa.BUILD], ids=["switchml", "fpisa"])
def test_recompiling_gives_the_same_bytes(build: Path) -> None:
    version = compile_tofino.compiler_version()
    if version is None or shutil.which("p4test") is None:
        pytest.skip(f"{compile_tofino.COMPILER}, {compile_tofino.ASSEMBLER} or p4test not found")
    recorded = read_digest()["tofino"]["compiler"]
    if version != recorded:
        pytest.skip(f"{version} found, the outputs were made by {recorded}")
    outputs = compile_tofino.compile_tofino(compile_tofino.PROGRAM if build == BUILD else fpisa.PROGRAM).outputs
    for path in build.glob("*.json"):
        if path.name != "digest.json":
            assert outputs[path.name] == path.read_text(encoding="utf-8"), f"{path.name} is not what {version} makes"
