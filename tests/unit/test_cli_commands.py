"""The command line without a fabric: usage, help, errors, exit statuses, JSON."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from switchml.commands.exit_status import ExitCode
from switchml.commands.failures import exit_code
from switchml.commands.root import Deferred, cli
from switchml.common import errors as topology_errors
from switchml.common.version import VERSION
from switchml.controller import errors as controller_errors
from switchml.dataplane.devices import built

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    for name in ("SWITCHML_CONTROLLER", "SWITCHML_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SWITCHML_RUN_DIR", str(tmp_path / "run"))

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(cli, list(arguments))

    return run


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, Deferred):
        command = command.load()
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from leaves(child, (*path, name))
    else:
        yield path, command


COMMANDS = dict(leaves(cli))

HEAVY = {"asyncio", "cryptography", "google.protobuf", "grpc", "numpy", "rich", "yaml"}
"""Modules that take long to import."""


def test_all_commands_are_there() -> None:
    assert {" ".join(path) for path in COMMANDS} == {
        *("up", "down", "status", "doctor", "advise", "completion", "synthesize", "version", "probe", "order"),
        *(
            "job start",
            "job list",
            "job show",
            "job status",
            "job watch",
            "job logs",
            "job stop",
            "job profile",
            "job wait",
        ),
        *("monitoring prometheus", "monitoring alerts", "monitoring dashboard"),
        *("events", "top", "certs init", "certs issue", "certs list"),
        *("switch list", "switch show", "switch loss", "switch drain", "switch undrain", "switch ports"),
        *("agent list", "agent show", "topology show", "topology controller"),
        *(
            "bench allreduce",
            "bench latency",
            "bench loss",
            "bench links",
            "bench ddp",
            "bench jobs",
            "bench kernels",
            "bench memory",
            "bench sparse",
        ),
        "bench show",
    }


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example_and_takes_json(path: tuple[str, ...], invoke: Invoke) -> None:
    result = invoke(*path, "--help")
    assert result.exit_code == 0
    assert f"switchml-ctl {' '.join(path)}" in result.stdout.split("Example")[1]
    assert "--json" in result.stdout


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_a_command_that_is_not_loaded_has_the_help_of_the_one_that_is(name: str) -> None:
    deferred = cli.commands[name]
    assert isinstance(deferred, Deferred)
    loaded = deferred.load()
    assert loaded.name == name
    assert deferred.get_short_help_str(200) == loaded.get_short_help_str(200)


PRINT_MODULES = """
import sys
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def modules_of(program: str, *arguments: str, **variables: str) -> set[str]:
    """Return the names of the modules that are imported when main(), which `first_lines` import, has returned."""
    command = [sys.executable, "-c", program + PRINT_MODULES, *arguments]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_import_no_more_than_click_does(option: str) -> None:
    small = "import click, sys\nmain = click.version_option('1')(click.Group('small'))\n"
    more = modules_of("from switchml.cli import main", option) - modules_of(small, option)
    ours = {"cli", "commands", "commands.exit_status", "commands.root", "commands.standard_streams"}
    ours |= {"common", "common.version"}
    machinery = {"importlib.util", "importlib._abc"}  # of an editable installation
    assert more <= {"switchml", *(f"switchml.{name}" for name in ours), "signal", *machinery}


def test_the_help_of_commands_imports_neither_grpc_nor_rich() -> None:
    load = "from switchml.commands.root import cli\ndef main():\n    [each.load() for each in cli.commands.values()]"
    assert not modules_of(load) & HEAVY


@pytest.mark.parametrize("line", ["switchml-ctl jo", "switchml-ctl job st", "switchml-ctl bench allreduce --wo"])
def test_completion_imports_neither_grpc_nor_rich(line: str) -> None:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    assert not modules_of("from switchml.cli import main", _SWITCHML_CTL_COMPLETE="bash_complete", **words) & HEAVY


def test_help_documents_the_exit_statuses(invoke: Invoke) -> None:
    result = invoke("--help")
    for status in ExitCode:
        assert re.search(rf"^ +{int(status)} ", result.stdout, re.MULTILINE)


def test_version_without_a_fabric_is_the_clients(invoke: Invoke) -> None:
    result = invoke("version", "--json")
    assert result.exit_code == 0
    assert "no live fabric" in result.stderr
    [client] = json.loads(result.stdout)["versions"]
    assert (client["kind"], client["version"]) == ("client", VERSION)


def test_version(invoke: Invoke) -> None:
    assert invoke("--version").stdout == f"switchml-ctl, version {VERSION}\n"


@pytest.mark.parametrize("workers", ["0", "4097", "-1", str(2**40)])
def test_worker_counts_outside_the_limits_are_usage_errors(workers: str, invoke: Invoke) -> None:
    result = invoke("job", "start", f"--workers={workers}", "--json")
    assert result.exit_code == 2
    assert f"1..4096 workers, not {workers}" in result.stderr
    assert json.loads(result.stdout)["exit_code"] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("up", "--values", "0"), "0 is outside 1..2048"),
        (("up", "--drop", "2"), "outside 0..1"),
        (("up", "--agents", "x"), "'x' is not a whole number from 1 to 64"),
        (("up", "--drop", "much"), "'much' is not a share; write 0.01 or 1%"),
        (("up", "--switch", "tofino"), "'tofino' must be one of soft, bmv2"),
        (("up", "--switch", "soft", "--workers", "65"), "65 is outside 1..64"),
        (("switch", "loss"), "give --ingress, --egress or both, or --off"),
        (("switch", "loss", "--off", "--egress", "0.1"), "or --off"),
        (("switch", "loss", "--egress", "1.5"), "1.5 is outside 0..1"),
        (("switch", "loss", "--egress", "150%"), "150% is outside 0..1"),
        (("job", "show", "\udcff"), "not text"),
        (("switch", "loss", "--egress", "0.5", "--port", "512"), "a port must be a number from 1 to 511, or all"),
        (("job", "start"), "Missing option '--workers'"),
        (("job", "start", "--workers", "2", "--slots", "-8"), "-8 is outside 0..32768"),
        (("job", "start", "--workers", "2", "--priority", str(2**40)), "is not in the range 0<=x<=7"),
        (("job", "start", "--workers", "2", "--detach"), "for jobs with a COMMAND"),
        (("job", "start", "--workers", "2", "--env", "NAME", "--", "true"), "'NAME' is not NAME=VALUE"),
        (("job", "logs", "1", "--rank", "4096"), "4096 is not in the range"),
        (("completion", "csh"), "csh"),
        (("job", "stop"), "give a JOB or --all"),
        (("top", "--web", "--once"), "--once is for the terminal"),
        (("top", "--address", "7680"), "--address and --certificate are for --web"),
        (("top", "--web", "--address", "x"), "neither PORT nor HOST:PORT"),
        (("job", "stop", "1", "--all"), "give a JOB or --all"),
        (("bench", "allreduce", "--workers", "1"), "'1' is not a number of workers from 2 to 64"),
        (("bench", "allreduce", "--sizes", "4QiB"), "'4QiB' is not a size; write 4KiB"),
        (("bench", "allreduce", "--peers", "nccl"), "'nccl' is not one of gloo, mpi-tcp, mpi-shm, mpi-shm-apart"),
        (("bench", "loss", "--shares", "2"), "2 is outside 0..1"),
        (("bench", "loss", "--shares", "100%"), "must be below 1"),
        (("bench", "loss", "--size", "1KiB,2KiB"), "one size"),
        (("bench", "kernels", "--sizes", "4KiB"), "at least 8 KiB"),
        (("bench", "sparse", "--overlap", "some"), "'some' is not one of random, all, none"),
        (("bench", "sparse", "--values", "4096"), "'4096' is not a number of values from 1 to 2048"),
        (("bench", "sparse", "--densities", "2"), "2 is outside 0..1"),
        (("bench", "sparse", "--size", "64KiB", "--block", "96"), "not a whole number of blocks of 96"),
        (("nonsense",), "No such command"),
    ],
)
def test_usage_errors(arguments: tuple[str, ...], words: str, invoke: Invoke) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""


NEED_A_CONTROLLER = [
    ("job", "list"),
    ("job", "show", "1"),
    ("job", "watch", "digits"),
    ("job", "wait", "digits"),
    ("job", "stop", "1"),
    ("top",),
    ("top", "--web"),
    ("switch", "list"),
    ("switch", "show"),
    ("switch", "loss", "--off"),
    ("agent", "list"),
    ("agent", "show", "a1"),
    ("switch", "ports"),
    ("job", "stop", "--all"),
]


@pytest.mark.parametrize("arguments", NEED_A_CONTROLLER, ids=" ".join)
def test_without_a_fabric_the_status_is_4_and_the_way_out_is_named(arguments: tuple[str, ...], invoke: Invoke) -> None:
    result = invoke(*arguments, "--json")
    assert result.exit_code == 4
    assert "switchml-ctl up" in result.stderr
    assert json.loads(result.stdout)["error"] == "NoFabricError"


@pytest.mark.parametrize("arguments", NEED_A_CONTROLLER, ids=" ".join)
def test_an_unreachable_controller_is_status_4(arguments: tuple[str, ...], invoke: Invoke) -> None:
    result = invoke("--controller", "127.0.0.1:1", *arguments)
    assert result.exit_code == 4
    assert "127.0.0.1:1" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("arguments", [["--help"], ["topology", "show"], ["topology", "show", "--json"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_an_error_and_no_traceback(arguments: list[str], unbuffered: str) -> None:
    command = [str(Path(sys.executable).with_name("switchml-ctl")), *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=30, check=False, env=environment
        )
    assert result.returncode == 1
    assert result.stderr.startswith(
        "Error: a file cannot be written: [Errno 28] No space left on device; free some space on"
    )
    assert "Traceback" not in result.stderr
    assert "Exception ignored" not in result.stderr


def test_status_without_a_fabric(invoke: Invoke) -> None:
    result = invoke("status", "--json")
    assert result.exit_code == 4
    assert json.loads(result.stdout)["state"] == "none"


def test_workers_without_a_switch_to_lay_out_are_refused(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("up", "--workers", "4", "--json")
    assert result.exit_code == 2
    assert "--switch soft or bmv2" in json.loads(result.stdout)["message"]


def test_a_topology_is_drawn_as_text_json_and_picture(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "t.svg"
    assert "port 8 ── h8" in invoke("topology", "show").stdout
    shown = json.loads(invoke("topology", "show", "--json", "--output", str(path)).stdout)
    assert [host["port"] for host in shown["hosts"]] == list(range(1, 9))
    assert path.exists()
    (tmp_path / "t.yaml").write_text(json.dumps(shown | {"name": "mine"}))  # JSON is YAML
    assert invoke("topology", "show", str(tmp_path / "t.yaml")).stdout.startswith("mine: 8 hosts")


def test_a_topology_file_that_is_wrong_is_named(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("name: t\n")
    for arguments in (("topology", "show"), ("up", "--topology")):
        result = invoke(*arguments, str(tmp_path / "t.yaml"))
        assert result.exit_code == 2
        assert "t.yaml: the file: switches is missing" in result.stderr


def test_down_without_a_fabric_has_nothing_to_do(invoke: Invoke) -> None:
    result = invoke("down", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["ended"] == []


def test_logs_of_no_job(invoke: Invoke) -> None:
    result = invoke("job", "logs", "digits", "--rank", "0")
    assert result.exit_code == 1
    assert "no job digits" in result.stderr


def test_a_command_that_does_not_exist_starts_nothing(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("job", "start", "--workers", "2", "--json", "--", "no-such-program-at-all")
    assert result.exit_code == 127
    assert "no-such-program-at-all is not on PATH" in result.stderr
    assert json.loads(result.stdout)["error"] == "CommandNotFoundError"
    assert not (tmp_path / "run").exists()


def test_a_command_that_is_not_executable_starts_nothing(invoke: Invoke, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    result = invoke("job", "start", "--workers", "2", "--", str(program))
    assert result.exit_code == 126
    assert "chmod +x" in result.stderr
    assert not (tmp_path / "run").exists()


def test_json_after_the_dashes_belongs_to_the_command(invoke: Invoke) -> None:
    result = invoke("job", "start", "--workers", "2", "--", "no-such-program-at-all", "--json")
    assert result.exit_code == 127
    assert result.stdout == ""


def test_a_wrong_configuration_file_is_an_error_by_name(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[fabric]\nspeed = 9\n")
    result = invoke("--config", str(path), "status")
    assert result.exit_code == 2
    assert "unknown key fabric.speed" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        (("--controller", "nonsense"), {}, "'nonsense' is neither HOST:PORT nor unix:/PATH"),
        ((), {"SWITCHML_CONTROLLER": "10.0.0.1:0"}, "environment variable SWITCHML_CONTROLLER"),
        (("--controller", "127.0.0.1:1", "--tls", "/nonexistent"), {}, "/nonexistent/ca.crt cannot be read"),
        (("--controller", "10.0.0.1:7600"), {}, "without TLS"),
    ],
)
def test_bad_values_are_usage_errors_wherever_they_come_from(
    arguments: tuple[str, ...], variables: dict[str, str], words: str, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    result = invoke(*arguments, "job", "list", "--json")
    assert result.exit_code == 2
    assert words in result.stderr
    assert json.loads(result.stdout)["exit_code"] == 2


def test_an_open_run_directory_is_refused(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o755)
    (tmp_path / "run").chmod(0o755)
    result = invoke("up")
    assert result.exit_code == 1
    assert "open to others" in result.stderr


def test_a_run_directory_without_permission(invoke: Invoke) -> None:
    result = invoke("--run-dir", "/proc/switchml", "up")
    assert result.exit_code == 1
    assert "/proc/switchml" in result.stderr
    assert "--run-dir" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_us_back(shell: str, invoke: Invoke) -> None:
    result = invoke("completion", shell)
    assert result.exit_code == 0
    assert f"_SWITCHML_CTL_COMPLETE={shell}_complete" in result.stdout
    assert json.loads(invoke("completion", shell, "--json").stdout)["script"].strip() == result.stdout.strip()


def test_completion_knows_the_commands() -> None:
    environment = {"_SWITCHML_CTL_COMPLETE": "bash_complete", "COMP_WORDS": "switchml-ctl job st", "COMP_CWORD": "2"}
    result = CliRunner().invoke(cli, [], env=environment)
    assert result.stdout.split() == ["plain,start", "plain,status", "plain,stop"]


def test_doctor_reports_as_json(invoke: Invoke) -> None:
    result = invoke("doctor", "--json")
    content = json.loads(result.stdout)
    assert {check["status"] for check in content["checks"]} <= {"ok", "warning", "failure", "not found"}
    assert content["healthy"] == (result.exit_code == 0)
    assert all(check["remedy"] for check in content["checks"] if check["status"] != "ok")
    names = [check["name"] for check in content["checks"]]
    assert {"Python", "kernel", "MTU", "UDP", "run directory", "switchml._native"} <= set(names)


def test_doctor_does_not_call_absent_things_ok(invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    content = json.loads(invoke("doctor", "--json").stdout)
    checks = {check["name"]: check for check in content["checks"]}
    assert checks["BMv2"]["status"] == "not found"
    assert checks["fabric"]["status"] == "not found"
    for package in ("torch", "matplotlib", "scikit-learn"):
        there = importlib.util.find_spec({"scikit-learn": "sklearn"}.get(package, package)) is not None
        assert checks[package]["status"] == ("ok" if there else "not found")
    for name, there in (("DPDK", built("dpdk")), ("AF_XDP", built("xdp"))):
        assert checks[name]["status"] == ("ok" if there else "not found")


@pytest.mark.parametrize(
    ("version", "status"), [("2.8.0", "warning"), ("2.13.1+cpu", "ok"), ("2.15.0", "ok"), ("2.16.0", "warning")]
)
def test_doctor_knows_the_versions_of_torch_that_are_tested(
    version: str, status: str, invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"torch-{version}.dist-info").mkdir()
    (tmp_path / f"torch-{version}.dist-info" / "METADATA").write_text(f"Name: torch\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    checks = {check["name"]: check for check in json.loads(invoke("doctor", "--json").stdout)["checks"]}
    assert checks["torch"]["status"] == status, checks["torch"]
    assert status == "ok" or "is tested with <2.16,>=2.13" in checks["torch"]["found"], checks["torch"]


def test_doctor_names_a_controller_that_does_not_answer(invoke: Invoke) -> None:
    result = invoke("--controller", "127.0.0.1:1", "doctor", "--json")
    assert result.exit_code == 1
    [check] = [check for check in json.loads(result.stdout)["checks"] if check["name"] == "controller"]
    assert check["status"] == "failure"


def test_every_error_of_the_controller_and_of_the_launcher_has_a_status() -> None:
    unreachable = {"ControllerUnavailable", "DeadlineExceeded"}
    ours = {"InternalError", "StoreError"}
    bad_values = {"InvalidRequest", "ConfigError"}
    for error in controller_errors.ControllerError.__subclasses__():
        name = error.__name__
        expected = ExitCode.UNREACHABLE if name in unreachable else ExitCode.ERROR if name in ours else ExitCode.REFUSED
        expected = ExitCode.USAGE if name in bad_values else expected
        assert exit_code(error("words")) == expected, name
    assert exit_code(topology_errors.NoFabricError("words")) == ExitCode.UNREACHABLE
    assert exit_code(topology_errors.StartError("words")) == ExitCode.ERROR
