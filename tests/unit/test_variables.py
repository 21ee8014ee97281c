"""The list of environment variables, and the warning about others."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from switchml.client import environment
from switchml.client.errors import ConnectError
from switchml.commands.root import cli
from switchml.common.variables import VARIABLES, unknown_variables
from switchml.launch.settings import KEYS
from tools.generate.programs import DAEMONS, variables_of

ROOT = Path(__file__).parents[2]
NAME = r"\bSWITCHML_[A-Z0-9_]*[A-Z0-9]\b"
OTHERS = {"SWITCHML_CONSTANTS_P4", "SWITCHML_DEVICES", "SWITCHML_H", "SWITCHML_INT", "SWITCHML_SWITCH"}
OTHERS |= {"SWITCHML_TOFINO"}
"""Include guards, an option of CMake, a macro of the C header, a prefix of click's, a name in an emulator."""


def read_by_sources() -> set[str]:
    """Return the variables that the sources, scripts and container files name."""
    places = ["*.py", "docker", "systemd", "examples", ":!examples/c", ":!tests", ":!switchml/common/variables.py"]
    in_c = r'(?<=")SWITCHML_[A-Z0-9_]*[A-Z0-9](?=")'  # other names are constants
    found = ""
    for pattern, where in ((NAME, places), (in_c, ["*.c", "*.cc", ":!tests"])):
        command = ["git", "grep", "-hoP", pattern, "--", *where]
        found += subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return set(found.split()) - OTHERS


def constants_of_the_library() -> set[str]:
    """Return the names in libswitchml's header."""
    return set(re.findall(NAME, (ROOT / "switchml/native/c_api/switchml.h").read_text(encoding="utf-8")))


def test_the_list_has_the_variables_of_all_programs_and_no_others() -> None:
    options = {name for command in DAEMONS.values() for name in variables_of(command)}
    read = options | {key.variable for key in KEYS.values()} | read_by_sources()
    assert sorted(read - VARIABLES) == []
    assert sorted(VARIABLES - read) == []


def test_the_documents_name_no_variable_that_nothing_reads() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        named = set(re.findall(NAME, page.read_text(encoding="utf-8")))
        assert sorted(named - VARIABLES - constants_of_the_library()) == [], page.name


@pytest.mark.parametrize("name", ["switchml-controller", "switchml-switch"])
def test_a_daemons_variables_are_named_as_its_options(name: str) -> None:
    prefix = name.replace("-", "_").upper()
    for variable, option in variables_of(DAEMONS[name]).items():
        assert variable == f"{prefix}_{option.opts[-1].removeprefix('--').replace('-', '_').upper()}"


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("SWITCHML_TORCH_WRE", "SWITCHML_TORCH_WRE (did you mean SWITCHML_TORCH_WIRE?)"),
        ("SWITCHML_RUNDIR", "SWITCHML_RUNDIR (did you mean SWITCHML_RUN_DIR?)"),
        ("SWITCHML_FABRIC_AGENT", "SWITCHML_FABRIC_AGENT (did you mean SWITCHML_FABRIC_AGENTS?)"),
    ],
)
def test_an_unknown_variable_is_named_with_the_nearest_one(variable: str, words: str) -> None:
    assert words in unknown_variables({variable: "1", "SWITCHML_RUN_DIR": "/x", "PATH": "/bin"})


def test_known_variables_and_those_of_kubernetes_give_no_warning() -> None:
    kubernetes = {"SWITCHML_CONTROLLER_SERVICE_HOST", "SWITCHML_CONTROLLER_SERVICE_PORT", "SWITCHML_CONTROLLER_PORT"}
    kubernetes |= {"SWITCHML_CONTROLLER_PORT_9800_TCP_ADDR", "SWITCHML_CONTROLLER_SERVICE_PORT_GRPC"}
    assert unknown_variables(dict.fromkeys(VARIABLES | kubernetes, "1")) == ""


def test_ctl_warns_once_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHML_RUNDIR", "/x")
    result = CliRunner().invoke(cli, ["topology", "show"])
    assert (result.exit_code, result.stderr.count("SWITCHML_RUN_DIR")) == (0, 1)


@pytest.mark.parametrize(("variables", "warnings"), [({"LOCAL_RANK": "0"}, 1), ({"LOCAL_RANK": "1"}, 0), ({}, 1)])
def test_one_rank_of_a_host_warns_once(
    variables: dict[str, str], warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    environ = {"SWITCHML_RUNDIR": str(variables), **variables}
    environment._warn.cache_clear()
    for _ in range(2):
        with pytest.raises(ConnectError, match="SWITCHML_JOB"):
            environment.find_target(environ)
    assert len(caplog.records) == warnings
