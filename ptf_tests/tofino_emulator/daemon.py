"""Run an emulated Tofino with a BfRt server as a process: ``python -m ptf_tests.tofino_emulator.daemon``."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import click

from ptf_tests.tofino_emulator.bfrt_device import Device, Program
from ptf_tests.tofino_emulator.bfrt_schema import Refusal
from ptf_tests.tofino_emulator.bfrt_server import Servicer, create_server
from ptf_tests.tofino_emulator.chassis import Chassis
from ptf_tests.tofino_emulator.frame_ports import FramePorts
from ptf_tests.tofino_emulator.program import PROGRAM
from ptf_tests.tofino_emulator.undefined import ModelError
from switchml import dataplane
from switchml.common.daemon import ReadyFile, run, stop_on_signals
from switchml.common.grpc_stop import last_tasks_end, stop_server
from switchml.common.tls import Security, TlsError, tls_options
from switchml.dataplane.softswitch.ports import parse_frame_port

__all__ = ["DEFAULT_BFRT", "main", "serve"]

_LOG = logging.getLogger(__name__)

DEFAULT_BFRT = Path(dataplane.__file__).parent / "p4" / "build" / "tofino" / "bfrt.json"
"""The bfrt.json of the TNA program."""

_STOP_GRACE_SECONDS = 0.5


async def serve(
    address: str,
    security: Security,
    device: Device,
    ready_file: ReadyFile,
    usage_file: Path | None,
    ports: FramePorts,
) -> None:
    """Run until SIGTERM or SIGINT.

    Raises:
        ModelError: the program processed a frame in a way that is not allowed.
        TlsError: certificates are missing or not usable.
        OSError: the address or a port cannot be used, or a file cannot be written.

    """
    stop = stop_on_signals()
    servicer = Servicer(device)
    server, bound = create_server(servicer, address, security)
    await server.start()
    try:
        _LOG.info("program %s is served over BfRt on %s", device.program.name, bound)
        ports.open(stop)
        ready_file.write(grpc=bound, program=device.program.name)
        await stop.wait()
        ports.check()
    finally:
        ports.close()
        servicer.end_streams()
        await stop_server(server, _STOP_GRACE_SECONDS)
        await last_tasks_end(_STOP_GRACE_SECONDS)
        if usage_file is not None:
            _write_usage(usage_file, device)


def _write_usage(path: Path, device: Device) -> None:
    path.write_text(json.dumps(sorted(device.used), indent=1) + "\n", encoding="utf-8")


@click.command(context_settings={"show_default": True})
@click.option(
    "--grpc",
    "address",
    metavar="HOST:PORT",
    default="127.0.0.1:50052",
    help="Address of the BfRt server; port 0: any free one.",
)
@click.option("--program", default="switchml", help="Name of the loaded P4 program.")
@click.option(
    "--bfrt",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=DEFAULT_BFRT,
    help="The bfrt.json of the program.",
)
@click.option(
    "--ir",
    type=click.Path(dir_okay=False, path_type=Path),
    default=PROGRAM,
    help="Program for the pipeline model; read if there are frame ports.",
)
@click.option(
    "--frame-port",
    "frame_ports",
    multiple=True,
    metavar="PORT=PATH,PEER",
    help="Device port that is a Unix datagram socket at PATH, and sends to PEER. May be repeated.",
)
@click.option(
    "--pipes", type=click.IntRange(1, 4), default=2, help="Number of pipes of the chip; only the first has packets."
)
@click.option(
    "--ready-file", type=click.Path(dir_okay=False, path_type=Path), help="JSON file to write when everything listens."
)
@click.option(
    "--usage-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON file to write at the end: all names in the tables that clients have used, as [table, kind, name].",
)
@tls_options("SWITCHML_TOFINO")
def main(
    address: str,
    program: str,
    bfrt: Path,
    ir: Path,
    frame_ports: tuple[str, ...],
    pipes: int,
    ready_file: Path | None,
    usage_file: Path | None,
    tls: Path | None,
    insecure: bool,
) -> None:
    """Run an emulated Tofino with a BfRt server, for tests. SIGTERM and SIGINT end it with exit status 0."""
    ready = ReadyFile(ready_file)
    ready.clear()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        device = Device(Program(program, bfrt.read_bytes()), Chassis.standard(pipes))
        ports = FramePorts([parse_frame_port(text) for text in frame_ports], ir, device.state)
        run(serve(address, Security.of(tls, insecure), device, ready, usage_file, ports), ModelError, TlsError)
    except Refusal as refusal:
        raise click.ClickException(refusal.message) from None
    except (OSError, ModelError, TlsError) as error:
        raise click.ClickException(str(error)) from None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


if __name__ == "__main__":
    main()
