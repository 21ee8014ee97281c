"""Every BfRt table, field and operation that the driver uses: in bfrt.json and in docs/operate/tofino.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ptf_tests.tofino_emulator.bfrt_device import Device
from switchml.controller.drivers import bfrt
from tests.loopback.bfrt_harness import make_device, make_driver, make_job, running, serving

DOCUMENT = Path(__file__).parents[2] / "docs" / "operate" / "tofino.md"
HEAD = ("| table | keys | actions and their parameters | data | operations |", "|---|---|---|---|---|")
# The padding fields of $PORT_METADATA have names that change with the program.
FILLING = "unused_"


async def use_everything(device: Device) -> None:
    """Use all functions of the driver."""
    async with serving(device) as (address, _), running(make_driver(address)) as run:
        await run.connected()
        first, second = make_job(1), make_job(2, (2, 1, 1))
        for job in (first, second):
            await run.driver.install_job(job)
        await run.driver.read_contents()
        assert await run.driver.reconcile([second]) > 0
        device.state.counters["pipe.SwitchMLIngress.job_counter"][1 << 4 | 1] = [1, 1]
        await run.driver.install_job(first)
        await run.driver.remove_job(first)
        await run.driver.reload()


@pytest.fixture
async def used(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str, str]]:
    monkeypatch.setattr(bfrt, "_RETRY_SECONDS", 0.05)
    device = make_device()
    await use_everything(device)
    return {one for one in device.used if not one[2].startswith(FILLING)}


def known(device: Device) -> set[tuple[str, str, str]]:
    """Return all names, read from the documents without the code of the server or the driver."""
    names = set()
    for table in [*json.loads(device.program.bfrt)["tables"], *device.fixed["tables"]]:
        name = table["name"]
        names |= {(name, "key", key["name"]) for key in table["key"]}
        names |= {(name, "operation", word) for word in (*table["supported_operations"], "clear", "usage")}
        names |= {(name, "attribute", word) for word in table["attributes"]}
        names |= {(name, "data", one.get("singleton", {}).get("name", "")) for one in table["data"]}
        for action in table.get("action_specs", ()):
            names |= {(name, "action", action["name"])}
            names |= {(name, "data", f"{action['name']}: {field['name']}") for field in action["data"]}
    return names


def rows(used: set[tuple[str, str, str]], device: Device) -> list[str]:
    """Return the list as lines of a Markdown table, with one line for all registers that are only cleared."""
    registers = {table.name for table in device.schema.by_id.values() if table.kind == "Register"}
    emptied = {name for name in registers if {one for one in used if one[0] == name} == {(name, "operation", "clear")}}
    used = {one for one in used if one[0] not in emptied}
    lines = [*HEAD, "| each other register | | | | clear |"]
    for table in sorted({table for table, _, _ in used}):
        of = {
            kind: sorted(name for one, k, name in used if (one, k) == (table, kind))
            for kind in ("key", "action", "data", "operation", "attribute")
        }
        plain = [name for name in of["data"] if ": " not in name]
        actions = [
            f"{action} ({', '.join(n.split(': ')[1] for n in of['data'] if n.startswith(f'{action}: '))})"
            for action in of["action"]
        ]
        cells = [table, ", ".join(of["key"]), "; ".join(actions), ", ".join(plain)]
        cells.append(", ".join(of["operation"] + of["attribute"]))
        lines.append("|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|")
    return lines


async def test_each_is_in_bfrt_json(used: set[tuple[str, str, str]]) -> None:
    assert used - known(make_device()) == set()
    assert {table for table, _, _ in used} >= {"$pre.node", "$pre.mgid", "$PORT", "$PORT_STR_INFO"}


async def test_the_list_in_the_documentation(used: set[tuple[str, str, str]]) -> None:
    text = DOCUMENT.read_text()
    expected = "\n".join(rows(used, make_device()))
    assert expected in text, f"put this list into {DOCUMENT.name}:\n{expected}"
