"""The daemon switchml-controller."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import getpass
import json
import logging
import os
from pathlib import Path
from typing import Any

import click
import grpc

from switchml.common.clock import Clock, chosen_clock
from switchml.common.daemon import DaemonOptions, daemon_options, run, stop_on_signals
from switchml.common.grpc_address import listen
from switchml.common.grpc_connections import CONNECTION_OPTIONS, limit_connections
from switchml.common.grpc_guard import Guard
from switchml.common.grpc_stop import stop_server
from switchml.common.tls import TlsError
from switchml.common.turns import FairTurns
from switchml.common.version import VERSION
from switchml.controller.admission.quotas import Quotas
from switchml.controller.config import ControllerConfig, load_config
from switchml.controller.controller import Controller
from switchml.controller.drivers.factory import make_driver
from switchml.controller.errors import ConfigError, ControllerError
from switchml.controller.northbound.bounds import BOUNDS
from switchml.controller.northbound.call_limits import CALLS_AT_ONCE
from switchml.controller.northbound.roles import Access
from switchml.controller.northbound.services import (
    AgentsService,
    ControlService,
    EventsService,
    JobsService,
    SwitchesService,
)
from switchml.controller.proto import events_pb2_grpc as events_grpc
from switchml.controller.proto import switchml_pb2_grpc as pb_grpc
from switchml.controller.rpc_errors import refuse
from switchml.controller.store.database import Store, stand_by
from switchml.controller.store.events import EventKind, requested_by
from switchml.controller.switches import ManagedSwitch, Switches
from switchml.dataplane.targets import Target

__all__ = ["main", "serve"]

_LOG = logging.getLogger(__name__)
_STOP_SECONDS = 1.0
_SERVER_OPTIONS = (*CONNECTION_OPTIONS, ("grpc.max_receive_message_length", 4 * 1024 * 1024))


async def serve(config: ControllerConfig, daemon: DaemonOptions, standby: bool = False) -> None:
    """Run the controller until SIGTERM or SIGINT; the configuration defines the protection of its connections.

    A standby first waits until it can take the place of another controller.

    Raises:
        ConfigError: the address cannot be bound, or the pipelines' files are not usable.
        StoreError: the store is not usable, or a standby has taken it over.

    """
    stop = stop_on_signals()
    clock = chosen_clock()
    opened = await _stand_by(config, stop, clock) if standby else Store(config.store)
    if opened is None:
        return
    with contextlib.closing(opened) as store:
        quotas = Quotas(config.tenants)
        controller = Controller(store, _switches(config, store), quotas, clock, config.shared_agents)
        controller.recovery.take_over()
        turns = FairTurns()
        access = Access(store.events, quotas, turns)
        server = _server(controller, access, turns)
        tasks: list[asyncio.Task[None]] = []
        try:
            address = _listen(server, config)
            await server.start()
            tasks += [
                asyncio.create_task(controller.switches.run(controller.recovery.prepare_switch), name="switches"),
                asyncio.create_task(controller.agents.run(), name="agents"),
                asyncio.create_task(controller.lost_switches.run(), name="lost switches"),
                asyncio.create_task(controller.lost_links.run(), name="lost links"),
                asyncio.create_task(store.lead(), name="leadership"),
                asyncio.create_task(store.events.run(), name="events"),
            ]
            tasks.append(asyncio.create_task(limit_connections(address, access.calls.peers), name="connections"))
            stopping = asyncio.create_task(stop.wait(), name="stop")
            served = None
            if daemon.metrics is not None:
                # Imported only if needed, because the import takes a tenth of a second.
                from switchml.common.metrics_server import MetricsExporter, on_loop
                from switchml.controller.metrics import ControllerMetrics

                numbers = ControllerMetrics(
                    controller.jobs, controller.agents, controller.switches, controller.pools, store.events
                )
                served = MetricsExporter(daemon.metrics, on_loop(numbers), config.security.certificates).address
            daemon.ready_file.write(address=address, **({} if served is None else {"metrics": served}))
            protection = "with TLS" if config.security.certificates_for(config.listen) else "without TLS"
            about = f"version {VERSION}, listens on {address} {protection}"
            with requested_by(_user()):
                store.events.record(EventKind.CONTROLLER_STARTED, about)
                _note_configuration(store, config)
            _LOG.info("switchml-controller %s listens on %s, store %s", VERSION, address, config.store)
            done, _ = await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # only `stopping` ends normally; an exception of another task is raised here
            _LOG.info("stopping; jobs continue, and are taken over at the next start")
        finally:
            store.events.record(EventKind.CONTROLLER_STOPPED)
            controller.agents.shut_down()
            await controller.rendezvous.close()
            await stop_server(server, _STOP_SECONDS)
            await controller.jobs.drain()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _stand_by(config: ControllerConfig, stop: asyncio.Event, clock: Clock) -> Store | None:
    """Open the store once no other controller leads; return None if this one must stop before."""
    _LOG.info("switchml-controller %s stands by, store %s", VERSION, config.store)
    waiting, stopping = asyncio.create_task(stand_by(config.store, clock)), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            _LOG.warning("takes over as the leader of term %d", waiting.result().term)
            return waiting.result()
        return None
    finally:
        waiting.cancel()
        stopping.cancel()


def _switches(config: ControllerConfig, store: Store) -> Switches:
    """Return the configured switches with a driver for each.

    Raises:
        ConfigError: the files of a pipeline are missing or damaged, or certificates are missing.
        VersionMismatch: a P4 program is of another version.

    """
    return Switches(
        [ManagedSwitch(one, make_driver(one, store.term, config.security)) for one in config.switches],
        store,
    )


def _server(controller: Controller, access: Access, turns: FairTurns) -> grpc.aio.Server:
    guard = Guard(access.check, BOUNDS, refuse)
    server = grpc.aio.server(options=_SERVER_OPTIONS, interceptors=[guard], maximum_concurrent_rpcs=CALLS_AT_ONCE)
    jobs, events = controller.jobs, controller.store.events
    agents = AgentsService(controller.agents, controller.messages, jobs, controller.probes, events, turns)
    for add, service in (
        (pb_grpc.add_JobsServicer_to_server, JobsService(jobs, controller.lifecycle, controller.profiles)),
        (pb_grpc.add_AgentsServicer_to_server, agents),
        (
            pb_grpc.add_SwitchesServicer_to_server,
            SwitchesService(controller.switches, controller.pools, controller.agents, events),
        ),
        (events_grpc.add_EventsServicer_to_server, EventsService(events, jobs)),
        (pb_grpc.add_ControlServicer_to_server, ControlService(controller.store)),
    ):
        add(service, server)  # type: ignore[no-untyped-call]
    return server


def _listen(server: grpc.aio.Server, config: ControllerConfig) -> str:
    try:
        return listen(server, config.listen, config.security)
    except TlsError as error:
        raise ConfigError(f"listen: {error}") from None
    except OSError as error:
        raise ConfigError(f"{error.strerror}; give another --listen, or port 0") from None


def _note_configuration(store: Store, config: ControllerConfig) -> None:
    """Record in the event log the changes of the configuration since the last start.

    The listening address is left out: it differs between standby and leader, and every start records it.
    """
    now = json.loads(json.dumps(config, default=lambda one: str(one) if isinstance(one, Path | Target) else vars(one)))
    del now["listen"]
    stored = store.exchange_configuration(json.dumps(now))
    if stored is None:
        return
    before = json.loads(stored)
    changed = [name for name in sorted({*now, *before}) if now.get(name) != before.get(name)]
    if changed:
        store.events.record(EventKind.CONFIGURATION_CHANGED, ", ".join(changed))


def _user() -> str:
    """Return the user that runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return f"user {os.getuid()}"


@click.command(context_settings={"auto_envvar_prefix": "SWITCHML_CONTROLLER"})
@click.option("--config", type=click.Path(path_type=Path), help="Configuration file (TOML).")
@click.option("--listen", metavar="HOST:PORT|unix:PATH", help="Listening address; port 0 takes any free one.")
@click.option("--store", type=click.Path(path_type=Path), help="SQLite file with the jobs.")
@click.option(
    "--standby", is_flag=True, help="Wait until the controller that leads with this store dies or stalls; then lead."
)
@click.option(
    "--check",
    is_flag=True,
    allow_from_autoenv=False,
    help="Check configuration, pipelines and certificates, start nothing, and end.",
)
@daemon_options("switchml-controller", "SWITCHML_CONTROLLER", "once the controller listens")
def main(
    config: Path | None,
    listen: str | None,
    store: Path | None,
    standby: bool,
    check: bool,
    daemon: DaemonOptions,
) -> None:
    """Run SwitchML's controller until SIGTERM or SIGINT.

    Options take precedence over the configuration file. Exit status: 0 after a signal; 1 when the configuration, the
    port or the store cannot be used; 2 for wrong options.

    Two controllers may share a store, the second with --standby and another --listen: it takes over within seconds, and
    agents and clients that are given both addresses (HOST:PORT,HOST:PORT) find the controller that leads.

    Example: switchml-controller --config fabric.toml --listen 127.0.0.1:0 --ready-file controller.json
    """
    # Errors of a switch are exceptions here, and are logged once; finsy would log them again.
    logging.getLogger("finsy").setLevel(logging.CRITICAL + 1)
    run(_serve_with(config, {"listen": listen, "store": store}, daemon, standby, check), ControllerError, TlsError)


async def _serve_with(
    path: Path | None, given: dict[str, Any], daemon: DaemonOptions, standby: bool, check: bool
) -> None:
    """Serve with the configuration of a file, which the given options override, or only check it."""
    config = load_config(path) if path is not None else ControllerConfig()
    given |= {"tls": None if daemon.tls is None else str(daemon.tls), "insecure": daemon.insecure or None}
    options = {name: value for name, value in given.items() if value is not None}
    config = dataclasses.replace(config, **options)
    if check:
        _check(config)
    else:
        await serve(config, daemon, standby)


def _check(config: ControllerConfig) -> None:
    """Say that a configuration is right.

    Raises:
        ConfigError: the files of a pipeline are missing or damaged.
        TlsError: certificates are missing or not usable.
        VersionMismatch: a P4 program is of another version.

    """
    certificates = config.security.certificates_for(config.listen)
    if certificates is not None:
        certificates.read()
    for switch in config.switches:
        make_driver(switch, 0, config.security)
    click.echo(f"the configuration is right: {len(config.switches)} switches, {len(config.tenants)} tenants")


if __name__ == "__main__":
    main()
