"""The commands of switchml-ctl: each calls a library function that returns data, and shows what it returned."""

import dataclasses
from pathlib import Path
from typing import Any

import click

from switchml.commands import output
from switchml.commands.bench import bench_group
from switchml.commands.certs import certs_group
from switchml.commands.completion import completion
from switchml.commands.events import show_events
from switchml.commands.jobs import job_group
from switchml.commands.session import ExitCode, Root, Session, json_option, setting
from switchml.commands.switches import agent_group, switch_group
from switchml.commands.top import show_top
from switchml.common.errors import NoFabricError
from switchml.common.version import VERSION
from switchml.controller.errors import ControllerUnavailable
from switchml.launch import fabric, layouts
from switchml.launch import settings as config
from switchml.launch.run_directory import RunDirectory
from switchml.ops import doctor, versions
from switchml.topologies import controller_file, drawing, topology

__all__ = ["cli"]


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="""\b
Exit status:
  0    done
  1    error on this machine, or the job that was watched or waited for failed
  2    wrong usage: an option, variable or file holds a value that is not allowed
  3    refused by the controller: no room, the name exists, no such job, ...
  4    no fabric here, or the controller cannot be reached
  124  `job wait --timeout`: the job has not ended in time
  126  the command of `job start` is not executable
  127  the command of `job start` does not exist
`job start -- COMMAND`, `job watch` and `job wait` pass on the status of the rank
that failed, 128+n for signal n.

\b
Examples:
  switchml-ctl up --agents 2
  switchml-ctl job start --workers 8 -- python train.py
  switchml-ctl job list --json
  switchml-ctl --controller 10.0.0.1:7600 --tls certs/admin switch show
  switchml-ctl down""",
)
@click.option(
    "--controller",
    metavar="ADDRESS",
    help=f"{config.KEYS['controller'].help}  [SWITCHML_CONTROLLER; default: the run directory's fabric]",
)
@click.option(
    "--run-dir",
    metavar="DIRECTORY",
    help=f"{config.KEYS['run_dir'].help}  [SWITCHML_RUN_DIR; default: $XDG_RUNTIME_DIR/switchml or /tmp/switchml-UID]",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration file.  [SWITCHML_CONFIG; default: ~/.config/switchml/config.toml]",
)
@click.option(
    "--tls", type=click.Path(path_type=Path), metavar="DIRECTORY", help=f"{config.KEYS['tls'].help}  [SWITCHML_TLS]"
)
@click.option("--insecure", is_flag=True, default=None, help=config.KEYS["insecure"].help)
@click.version_option(VERSION, prog_name="switchml-ctl")
@click.pass_context
def cli(
    context: click.Context,
    controller: str | None,
    run_dir: str | None,
    config_file: Path | None,
    tls: Path | None,
    insecure: bool | None,
) -> None:
    """All-reduce inside the network: fabrics, jobs, switches and agents of SwitchML.

    Options are taken before environment variables, those before the configuration file.
    """
    context.obj = Session(controller, run_dir, config_file, tls, insecure)


# ---- the embedded fabric --------------------------------------------------------------------------------------------


@cli.command(
    epilog="""\b
Examples:
  switchml-ctl up
  switchml-ctl up --agents 4 --values 1024
  switchml-ctl up --transport udp
  switchml-ctl up --drop 0.01 --duplicate 0.01 --delay 0.01 --seed 7
  switchml-ctl up --switch bmv2 --workers 4
  switchml-ctl up --switch soft --topology my-topology.yaml"""
)
@setting("fabric.switch", "--switch")
@setting("fabric.workers", "--workers")
@setting("fabric.topology", "--topology")
@setting("fabric.agents", "--agents")
@setting("fabric.transport", "--transport")
@setting("fabric.threads", "--threads")
@setting("fabric.values", "--values")
@setting("fabric.slots", "--slots")
@setting("fabric.drop", "--drop")
@setting("fabric.duplicate", "--duplicate")
@setting("fabric.delay", "--delay")
@setting("fabric.flip", "--flip")
@setting("fabric.seed", "--seed")
@json_option
@click.pass_obj
def up(session: Session, /, as_json: bool, **options: Any) -> None:
    """Start switch, controller and agents as processes of this machine.

    They run until `switchml-ctl down`. A fabric that runs already is left as it is.

    With --switch or --topology they are laid out in network namespaces: one for the switch and the controller, one for
    each host with its agent, and links between. That needs root.
    """
    settings = session.settings(**options)
    directory = RunDirectory(settings.run_dir)
    with output.ProgressBar() as bar:
        found, started = fabric.start(directory, settings.fabric, keep=True, report=bar.note, progress=bar)
    if not started:
        output.note("a fabric runs already")
        if layouts.resolve(settings.fabric) != found.options:
            output.note("its options are others than those asked for; `switchml-ctl down` first to change them")
    if as_json:
        output.print_json({"started": started, **_fabric_dict(fabric.inspect(directory), settings)})
    else:
        output.show_fabric(fabric.inspect(directory))


def _fabric_dict(status: fabric.FabricStatus, settings: config.Settings) -> dict[str, Any]:
    found = status.fabric
    content: dict[str, Any] = {"state": status.state, "run_dir": str(settings.run_dir)}
    if found is not None:
        dead = {process.name for process in status.dead}
        content |= {
            "controller": found.controller,
            "version": found.version,
            "options": dataclasses.asdict(found.options),
            "topology": found.topology,
            "switch": found.switch,
            "agents": list(found.agents),
            "processes": [
                {"name": process.name, "pid": process.pid, "alive": process.name not in dead, "log": process.log}
                for process in found.processes
            ],
        }
    return content


@cli.command(epilog="\b\nExample:\n  switchml-ctl down")
@json_option
@click.pass_obj
def down(session: Session, as_json: bool) -> None:
    """Stop the jobs of this run directory's fabric and end its processes."""
    settings = session.settings()
    stopped, ended = fabric.stop(RunDirectory(settings.run_dir), report=output.note)
    if as_json:
        output.print_json({"run_dir": str(settings.run_dir), "jobs_stopped": stopped, "ended": ended})
        return
    for name in stopped:
        click.echo(f"stopped job {name}")
    click.echo(f"ended {', '.join(ended)}" if ended else f"no fabric runs in {settings.run_dir}")


@cli.command(epilog="\b\nExamples:\n  switchml-ctl status\n  switchml-ctl status --json | jq .state")
@json_option
@click.pass_obj
def status(session: Session, as_json: bool) -> int:
    """Show the fabric: processes, switches, agents, live jobs. Exit status 4 when there is none."""
    settings = session.settings()
    found = fabric.FabricStatus("none", None, ())
    if settings.controller is None:
        found = fabric.inspect(RunDirectory(settings.run_dir))
        if found.state != "running":
            return _no_fabric(settings, found, as_json)
    with session.client() as client:
        info, switches, agents = client.info(), client.list_switches(), client.list_agents()
        live = client.list_jobs()
    if as_json:
        content = _fabric_dict(found, settings) | {"state": "running", "controller": client.address}
        content |= {"controller_version": info.version, "switches": [output.as_dict(switch) for switch in switches]}
        content |= {"agents": [output.as_dict(agent) for agent in agents]}
        output.print_json(content | {"jobs": [output.as_dict(job) for job in live]})
        return ExitCode.OK
    output.show_fabric(found)
    output.show_switches(switches)
    output.show_agents(agents)
    output.console().print(output.jobs_table(live))
    return ExitCode.OK


def _no_fabric(settings: config.Settings, found: fabric.FabricStatus, as_json: bool) -> int:
    try:
        fabric.controller_address(settings)
    except NoFabricError as error:
        click.echo(str(error), err=True)
    if as_json:
        output.print_json(_fabric_dict(found, settings))
    else:
        output.show_fabric(found)
    return ExitCode.UNREACHABLE


@cli.command("version", epilog="\b\nExamples:\n  switchml-ctl version\n  switchml-ctl version --json")
@json_option
@click.pass_obj
def show_version(session: Session, as_json: bool) -> int:
    """Show the version of this program, and those of the controller, the agents and the switches.

    The exit status is 1 if a version differs, and 0 without a fabric too.
    """
    found = [versions.client_version()]
    try:
        with session.client() as client:
            found += versions.server_versions(client)
    except (ControllerUnavailable, NoFabricError) as error:
        output.note(str(error))
    if as_json:
        output.print_json({"versions": [dataclasses.asdict(version) for version in found]})
    else:
        output.show_versions(found)
    return ExitCode.ERROR if any(version.same is False for version in found) else ExitCode.OK


@cli.command("doctor", epilog="\b\nExample:\n  switchml-ctl doctor")
@json_option
@click.pass_obj
def examine(session: Session, as_json: bool) -> int:
    """Check this machine, the run directory and the controller, and say what to mend."""
    checks = doctor.examine(session.settings())
    healthy = all(check.status != doctor.FAILURE for check in checks)
    if as_json:
        output.print_json({"healthy": healthy, "checks": [dataclasses.asdict(check) for check in checks]})
    else:
        output.show_checks(checks)
    return ExitCode.OK if healthy else ExitCode.ERROR


# ---- topologies -----------------------------------------------------------------------------------------------------


@cli.group("topology")
def topology_group() -> None:
    """Look at topologies: what `up --switch` lays out in network namespaces."""


@topology_group.command(
    "show",
    epilog="""\b
Examples:
  switchml-ctl topology show
  switchml-ctl topology show my-topology.yaml --output my-topology.svg""",
)
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False), metavar="[FILE]")
@click.option(
    "--output",
    "picture",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.png|svg",
    help="Draw it there.",
)
@json_option
@click.pass_obj
def show_topology(session: Session, file: Path | None, picture: Path | None, as_json: bool) -> None:
    """Draw a topology file; without one that of the run directory's fabric, else the one that comes with SwitchML."""
    shown = topology.load(file) if file is not None else _laid_out(session) or topology.load(topology.PACKAGED)
    if picture is not None:
        drawing.picture(shown, picture)
        output.note(f"wrote {picture}")
    if as_json:
        output.print_json(shown.as_dict())
    elif picture is None:
        click.echo(drawing.text(shown))


@topology_group.command(
    "controller",
    epilog="""\b
Example:
  switchml-ctl topology controller tofino.yaml > controller.toml""",
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@json_option
def controller_of_topology(file: Path, as_json: bool) -> None:
    """Print the controller's configuration for a topology file whose switch is there already: a Tofino."""
    text = controller_file.controller_file(topology.load(file))
    if as_json:
        output.print_json({"configuration": text})
    else:
        click.echo(text, nl=False)


def _laid_out(session: Session) -> topology.Topology | None:
    """The topology of the run directory's fabric, None where it has none."""
    found = fabric.inspect(RunDirectory(session.settings().run_dir)).fabric
    if found is None or found.topology is None:
        return None
    return topology.Topology.from_dict(found.topology)


for command in (job_group, switch_group, agent_group, bench_group, certs_group, show_events, show_top, completion):
    cli.add_command(command)
