"""Command lines as users type them: every example in --help, and every option of every command, on its own.

docs/reference/commands.md has the same examples.

Both come from click's own definitions, so a new option is tested without a line here. Commands of switchml-ctl run up
to the point where they need a fabric: the run directory cannot be created, and no controller listens where the examples
say. Daemons run until their last step, which fails. Only wrong usage has exit status 2.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

import click
import pytest
from click.testing import CliRunner

from switchml.benchmarks.errors import BenchmarkError
from switchml.commands import bench, bench_parameters
from switchml.commands.exit_status import ExitCode
from switchml.commands.root import Deferred, cli
from switchml.controller.daemon import main as controller
from switchml.dataplane.softswitch.daemon import main as switch
from switchml.host_agent.daemon import main as agent

STAND_INS: Final = {
    "10.0.0.1:": "127.0.0.1:",
    "10.0.0.7": "127.0.0.1",
    "/etc/switchml/": "",
    "/run/switchml/": "missing/",
    "venv/bin/python": sys.executable,
}
"""Names in examples that tests must not use, or that this machine lacks, and what they use instead."""

TOFINO: Final = """
name: rack
switches:
  - {name: t1, target: tofino, mac: "02:00:00:00:00:fe", ipv4: 10.0.0.254, bfrt: "10.1.0.1:50052",
     ports: [{number: 1, name: 1/0, speed: 100G}]}
hosts: [{name: h1, mac: "0c:42:a1:00:00:01", ipv4: 10.0.0.1/24, switch: t1, port: 1}]
"""

NOT_READY: Final = "--ready-file missing/ready"
DAEMONS: Final = {
    "switchml-switch": (switch, NOT_READY, "--grpc 127.0.0.1:0 --udp-port 1=127.0.0.1:0 --metrics 0"),
    "switchml-controller": (controller, NOT_READY, "--listen 127.0.0.1:0 --store store --metrics 0"),
    "switchml-agent": (agent, "--socket missing/socket", "--controller 127.0.0.1:1 --metrics 0"),
}
"""The daemons, each with an option that lets its last step fail, when the rest is done, and its other options."""

SECONDS: Final = 90


def commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield the command and those below it, with their names."""
    if isinstance(command, Deferred):
        command = command.load()
    yield path, command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from commands(child, (*path, name))


def examples(command: click.Command) -> list[str]:
    """Return the command lines in the help, without what the shell does with their output."""
    shown = f"{command.help}\n{command.epilog}".partition("Example")[2]
    return [line.strip() for line in re.findall(r"(?<![/_])switchml-[a-z]+[^|>&)\n]*", shown)]


def words_with(option: click.Option, command: click.Command) -> str:
    """Return the option with a value that it accepts."""
    kind: Any = option.type
    name = option.opts[-1]
    if option.is_flag:
        return name
    if isinstance(kind, click.Choice):
        texts = [*kind.choices]
    elif isinstance(kind, click.Path):
        texts = ["empty" if kind.file_okay else "directory"]
    else:
        default = (
            [str(option.default)] if isinstance(option.default, (str, int, float)) and option.default != "" else []
        )
        texts = [
            *default,
            "1",
            "0.5",
            "h1,h2",
            "127.0.0.1:1",
            "2=path,peer",
            "7=46",
            "02:00:00:00:00:01",
            "token",
            "codes:name=natural8",
        ]
    context = click.Context(command)
    for text in texts:
        with contextlib.suppress(click.BadParameter):
            option.process_value(context, (text,) if option.multiple else text)
            return f"{name} {shlex.quote(text)}"
    raise AssertionError(f"none of {texts} is a value of {name}: show one in an example of --help")


@dataclasses.dataclass(frozen=True)
class Given:
    """An option that no example of its command has, and the command line that gives it."""

    program: str  # with the command and with options before this one
    command: click.Command
    option: click.Option
    arguments: str = ""

    def __str__(self) -> str:
        return f"{self.program} {self.option.opts[-1]}"

    def line(self) -> str:
        return f"{self.program} {words_with(self.option, self.command)} {self.arguments}"


def options(program: str, command: click.Command, arguments: str = "") -> Iterator[Given]:
    """Yield the options of a command that no example has."""
    shown = set(shlex.split(" ".join(examples(command))))
    for option in command.params:
        if isinstance(option, click.Option) and not (option.hidden or option.is_eager or shown & set(option.opts)):
            yield Given(program, command, option, arguments)


def options_of_ctl() -> Iterator[Given]:
    """Yield `options` of all commands, with the arguments of the first example of each."""
    for path, command in commands(cli, ("switchml-ctl",)):
        name = " ".join(path)
        first = "status" if command is cli else "".join(examples(command)[:1]).removeprefix(name)
        yield from options(name, command, first)


def options_of_daemons() -> Iterator[Given]:
    """Yield `options` of all daemons, with options with which each ends by itself."""
    for name, (command, end, base) in DAEMONS.items():
        yield from options(f"{name} {base} {end}", command)


EXAMPLES = [line for _, command in commands(cli, ("switchml-ctl",)) for line in examples(command)]
DAEMON_EXAMPLES = [f"{line} {end}" for command, end, _ in DAEMONS.values() for line in examples(command)]


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the files that examples name."""
    place = tmp_path_factory.mktemp("files")
    for line in (
        "certs init certs",
        "topology show --json",
        "bench kernels --sizes 8KiB --seconds 0.001 --json allreduce.json",
    ):
        command = [str(Path(sys.executable).with_name("switchml-ctl")), *line.split()]
        done = subprocess.run(command, cwd=place, capture_output=True, timeout=SECONDS, check=True)
        (place / "my-topology.yaml").write_bytes(done.stdout) if "topology" in line else None
    (place / "latency.json").write_bytes((place / "allreduce.json").read_bytes())
    (place / "tofino.yaml").write_text(TOFINO)
    (place / "token").write_text("0123456789abcdef")
    (place / "token").chmod(0o600)
    (place / "fabric.toml").touch()
    (place / "empty").touch()
    (place / "docs" / "results").mkdir(parents=True)
    (place / "docs" / "results" / "performance.md").touch()
    return place


@pytest.fixture
def here(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in that directory, with a run directory that cannot be created, and measure and draw nothing."""

    def refuse(*_: object) -> NoReturn:
        raise BenchmarkError("this test neither measures nor draws")

    monkeypatch.chdir(files)
    monkeypatch.setenv("SWITCHML_RUN_DIR", "empty/run")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(files))
    monkeypatch.delenv("SWITCHML_CONTROLLER", raising=False)
    monkeypatch.setattr(bench_parameters, "measured", refuse)
    monkeypatch.setattr(bench, "_drawn", refuse)


def words_of(line: str) -> list[str]:
    """Return the words of a command line, as a shell would pass them on."""
    for named, instead in STAND_INS.items():
        line = line.replace(named, instead)
    words = shlex.split(line)
    return [found for word in words for found in (map(str, Path().glob(word)) if "*" in word else (word,))]


def run_ctl(line: str) -> tuple[int, str]:
    """Return the exit status and the output of a command line of switchml-ctl, run in this process."""
    result = CliRunner().invoke(cli, words_of(line)[1:])
    assert isinstance(result.exception, (SystemExit, type(None))), f"{line}: {result.exception!r}"
    return result.exit_code, f"{line}: exit status {result.exit_code}\n{result.output}"


def run_daemon(line: str) -> tuple[int, str]:
    """Return the exit status and the output of a daemon that ends by itself."""
    name, *words = words_of(line)
    done = subprocess.run(
        [Path(sys.executable).with_name(name), *words], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert "Traceback" not in done.stderr, f"{line}: {done.stderr}"
    return done.returncode, f"{line}: exit status {done.returncode}\n{done.stdout}{done.stderr}"


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("given", [*EXAMPLES, *options_of_ctl()], ids=str)
def test_every_example_and_every_option_of_ctl_is_accepted(given: str | Given) -> None:
    status, told = run_ctl(given.line() if isinstance(given, Given) else given)
    assert status != ExitCode.USAGE, told


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("given", [*DAEMON_EXAMPLES, *options_of_daemons()], ids=str)
def test_every_example_and_every_option_of_a_daemon_is_accepted(given: str | Given) -> None:
    status, told = run_daemon(given.line() if isinstance(given, Given) else given)
    assert status in (ExitCode.OK, ExitCode.ERROR), told


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", DAEMONS)
def test_a_daemon_warns_of_an_unknown_variable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHML_RUNDIR", "/x")
    _, told = run_daemon(f"{name} {' '.join(DAEMONS[name][1:])}")
    assert told.count("SWITCHML_RUNDIR (did you mean SWITCHML_RUN_DIR?)") == 1, told


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        ("", 0, "the configuration is right: 0 switches, 0 tenants"),
        ('[controller]\ntls = "missing"\n', 1, "certificates in admin"),
        ("[controller]\nspeed = 1\n", 1, "speed"),
    ],
)
def test_the_controller_checks_a_configuration(content: str, status: int, words: str, tmp_path: Path) -> None:
    (tmp_path / "fabric.toml").write_text(content.replace("missing", str(Path("certs/missing").absolute())))
    found, told = run_daemon(f"switchml-controller --config {tmp_path / 'fabric.toml'} --check")
    assert (found, words in told) == (status, True), told
