"""The backend name "switchml" in programs that do not import SwitchML, started like users do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fabric_harness import Ctl

SCRIPT = """
import os, sys
import torch
import torch.distributed as dist
{first}
assert "switchml.torch" not in sys.modules or {imported}
dist.init_process_group("switchml")
x = torch.ones(1000)
dist.all_reduce(x)
assert x[0] == dist.get_world_size() == int(os.environ["WORLD_SIZE"])
assert dist.get_backend() == "switchml" and dist.group.WORLD.name() == "switchml"
assert dist.group.WORLD.state == "network", dist.group.WORLD.state
print("in job", dist.group.WORLD.job, flush=True)
{last}
"""


def script(directory: Path, first: str = "", last: str = "dist.destroy_process_group()") -> str:
    path = directory / "script.py"
    path.write_text(SCRIPT.format(first=first, last=last, imported=bool(first)))
    return str(path)


def test_job_start_and_no_import(fabric: Ctl, tmp_path: Path) -> None:
    result = fabric.json("job", "start", "--workers", "2", "--", sys.executable, script(tmp_path))
    assert result["state"] == "COMPLETED"
    log = (Path(result["run_dir"]) / "rank-1.log").read_text()
    assert f"in job {result['name']}" in log
    assert "nanobind" not in log


def test_a_program_that_does_not_destroy_its_group(fabric: Ctl, tmp_path: Path) -> None:
    result = fabric.json("job", "start", "--workers", "2", "--", sys.executable, script(tmp_path, last=""))
    assert result["state"] == "COMPLETED"
    assert "nanobind" not in (Path(result["run_dir"]) / "rank-0.log").read_text()


def test_autoload_turned_off(fabric: Ctl, tmp_path: Path) -> None:
    fabric.environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    try:
        with_import = script(tmp_path, first="import switchml.torch")
        assert fabric.json("job", "start", "--workers", "2", "--", sys.executable, with_import)["state"] == "COMPLETED"
    finally:
        del fabric.environment["TORCH_DEVICE_BACKEND_AUTOLOAD"]


def test_importing_torch_imports_nothing_of_us_but_the_name_of_the_backend() -> None:
    lines = "import sys, torch; print(*(name for name in sys.modules if name.split('.')[0] == 'switchml'))"
    done = subprocess.run([sys.executable, "-c", lines], env=os.environ, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {
        "switchml",
        "switchml.common",
        "switchml.common.version",
        "switchml.torch_backend",
    }


@pytest.mark.parametrize("environment", [{}, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}])
def test_the_entry_point_decides_whether_the_name_is_known(environment: dict[str, str]) -> None:
    lines = "import torch.distributed as dist; print(dist.is_backend_available('switchml'))"
    done = subprocess.run(
        [sys.executable, "-c", lines], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(not environment)


MIXED = """
import torch, torch.distributed as dist
dist.init_process_group("cpu:gloo", rank=0, world_size=1, store=dist.HashStore())
group = dist.group.WORLD
dist.all_reduce(torch.ones(3))
print(group.name(), group._has_hooks(), group._get_sequence_number_for_group(), list(dist.Backend._plugins.keys()))
print(dist.Backend.default_device_backend_map, dist.get_backend_config())
dist.destroy_process_group()
"""


def test_a_program_that_does_not_use_switchml_is_not_changed_by_it() -> None:
    printed = [
        subprocess.run(
            [sys.executable, "-c", MIXED],
            env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload},
            capture_output=True,
            text=True,
            check=True,
        )
        for autoload in ("1", "0")
    ]
    assert printed[0].stdout == printed[1].stdout
    assert printed[0].stdout.startswith("gloo False 1 []")
