"""Check whether this machine can run a fabric, and say what to change."""

import dataclasses
import errno
import importlib
import os
import platform
import re
import resource
import shutil
import socket
import stat
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Final, Literal

from switchml.common.errors import NamespaceError, OperationError, ProgramNotFoundError
from switchml.common.installation import install_command, reinstall_command
from switchml.common.processes import find_program
from switchml.common.version import VERSION
from switchml.controller.errors import ControllerError
from switchml.dataplane.constants import PROTOCOL_HEADER_BYTES
from switchml.dataplane.devices import list_rdma_ports, require_built
from switchml.dataplane.targets import SOFT
from switchml.launch.fabric import connect
from switchml.launch.fabric_state import Fabric, inspect
from switchml.launch.kinds.namespaced import BMV2_SOURCE
from switchml.launch.layouts import CONTROL_SOCKETS
from switchml.launch.orphans import orphans
from switchml.launch.run_directory import UNIX_PATH_LIMIT, RunDirectory
from switchml.launch.settings import Settings
from switchml.ops.tested_versions import compared, found_versions, numbers
from switchml.topologies.namespaces import require_privileges

__all__ = ["Check", "examine"]

OK: Final = "ok"
WARNING: Final = "warning"
FAILURE: Final = "failure"
NOT_FOUND: Final = "not found"
"""Something optional is missing: what needs it cannot be used, everything else can."""

_IPV4_UDP_HEADER_BYTES: Final = 28
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33  # socket(7); the module socket lacks them
_NATIVE_MODULES: Final = ("switchml.dataplane.softswitch._native", "switchml.host_agent._engine", "switchml._native")
_OPTIONAL_PACKAGES: Final = (
    ("torch", "torch", 'init_process_group("switchml")'),
    ("matplotlib", "bench", "drawing pictures"),
    ("scikit-learn", "demo", "examples/train_digits.py"),
)
_LOCKED_BYTES: Final = 16 << 20  # two rings of 1,024 buffers of a queue pair, and the memory of some ranks
_OPTIONAL_PROGRAMS: Final = (
    ("BMv2", f"`up --switch bmv2` needs it: {BMV2_SOURCE}"),
    ("Open MPI", "`bench --peers mpi-shm,mpi-tcp` needs it"),
    ("p4c", "compiling changed P4 programs needs it"),
)
_PROGRAMS: Final = ("switchml-switch", "switchml-controller", "switchml-agent")


@dataclasses.dataclass(frozen=True)
class Check:
    """The result of one check: `status` is OK, WARNING, FAILURE or NOT_FOUND; `remedy` says what to do unless OK."""

    name: str
    status: str
    found: str
    remedy: str = ""


def examine(settings: Settings) -> list[Check]:
    """Check the machine, the run directory and the controller. Opens sockets briefly; changes nothing else."""
    checks = [_python(), _kernel(), _memory_files()]
    checks += [_native_module(name) for name in _NATIVE_MODULES]
    checks += [_program(name) for name in _PROGRAMS]
    checks += [_run_directory(settings), _socket_paths(settings), _disk(settings)]
    checks += [_udp(settings), _loopback_mtu(settings), _socket_buffers(), _cpus()]
    checks += [_namespaces(), *_optional_programs()]
    checks += [_package(name, extra, purpose) for name, extra, purpose in _OPTIONAL_PACKAGES]
    checks += [_transport("DPDK", "dpdk"), _transport("AF_XDP", "xdp"), *_rdma()]
    checks += _fabric(settings)
    return checks


def _python() -> Check:
    return Check("Python", OK, f"{compared('Python', platform.python_version())}, {sys.executable}")


def _kernel() -> Check:
    found = f"{platform.system()} {platform.release()}"
    if platform.system() != "Linux":
        return Check("kernel", FAILURE, found, "SwitchML runs on Linux only.")
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return Check("kernel", FAILURE, f"{found}: pidfd_open: {error.strerror}", "Use Linux 5.3 or later.")
    version = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2] if part.isdecimal())
    if version < (5, 0):
        return Check("kernel", WARNING, f"{found}, without UDP GRO", "Linux 5.0 or later is several times as fast.")
    return Check("kernel", OK, f"Linux {compared('kernel', platform.release().partition('-')[0])}")


def _memory_files() -> Check:
    try:
        os.close(os.memfd_create("switchml-doctor"))
    except OSError as error:
        return Check(
            "memfd", FAILURE, f"memfd_create: {error.strerror}", "Let the container's seccomp profile allow it."
        )
    return Check("memfd", OK, "shared memory can be created")


def _native_module(name: str) -> Check:
    try:
        importlib.import_module(name)
    except ImportError as error:
        return Check(name, FAILURE, str(error), f"`{reinstall_command()}`")
    return Check(name, OK, "the native module loads")


def _program(name: str) -> Check:
    try:
        return Check(name, OK, find_program(name))
    except ProgramNotFoundError as error:
        return Check(name, FAILURE, "not found", str(error))


def _run_directory(settings: Settings) -> Check:
    directory = RunDirectory(settings.run_dir)
    try:
        if not directory.exists():
            parent = next(path for path in settings.run_dir.parents if path.exists())
            if not os.access(parent, os.W_OK | os.X_OK):
                return Check("run directory", FAILURE, f"{parent} is not writable", "Choose another with --run-dir.")
            return Check("run directory", OK, f"{settings.run_dir} will be created")
        directory.check()
    except OperationError as error:
        return Check("run directory", FAILURE, str(error), "Choose another with --run-dir.")
    return Check("run directory", OK, str(settings.run_dir))


def _socket_paths(settings: Settings) -> Check:
    length = max(len(os.fsencode(settings.run_dir / name)) for name in CONTROL_SOCKETS)
    if length > UNIX_PATH_LIMIT:
        return Check(
            "Unix sockets",
            WARNING,
            f"a path in the run directory has {length} bytes, and at most {UNIX_PATH_LIMIT} are allowed",
            "Sockets are put into a temporary directory instead; a shorter --run-dir avoids this.",
        )
    return Check("Unix sockets", OK, f"paths have at most {length} bytes, and {UNIX_PATH_LIMIT} are allowed")


def _disk(settings: Settings) -> Check:
    place = next(path for path in (settings.run_dir, *settings.run_dir.parents) if path.exists())
    free = shutil.disk_usage(place).free
    found = f"{free / 2**20:,.0f} MiB free under {place}"
    if free < 64 * 2**20:
        return Check("disk", WARNING, found, "Logs and results need space; choose another place with --run-dir.")
    return Check("disk", OK, found)


def _values(settings: Settings) -> int:
    return settings.fabric["values"] or SOFT.default_values


def _packet_bytes(settings: Settings) -> int:
    return PROTOCOL_HEADER_BYTES + 4 * _values(settings)


def _udp(settings: Settings) -> Check:
    size = _packet_bytes(settings)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
            receiver.bind(("127.0.0.1", 0))
            receiver.settimeout(1.0)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(bytes(size), receiver.getsockname())
            arrived = len(receiver.recv(65535))
    except OSError as error:
        return Check(
            "UDP",
            FAILURE,
            f"loopback: {error}",
            "Is the interface lo up (`ip link set lo up`)? Does a firewall block it?",
        )
    if arrived != size:
        return Check(
            "UDP",
            FAILURE,
            f"{arrived} of {size} bytes arrived",
            "Something on lo truncates packets; is a firewall or filter active?",
        )
    return Check("UDP", OK, f"a datagram of {size} bytes crosses loopback")


def _loopback_mtu(settings: Settings) -> Check:
    needed = _packet_bytes(settings) + _IPV4_UDP_HEADER_BYTES
    try:
        mtu = int(Path("/sys/class/net/lo/mtu").read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        return Check("MTU", WARNING, f"the MTU of lo is unknown: {error}", "Is /sys mounted?")
    if mtu < needed:
        found = f"lo has {mtu}, packets need {needed}"
        return Check("MTU", FAILURE, found, f"`ip link set lo mtu {needed}`, or fewer --values")
    return Check("MTU", OK, f"lo has {mtu}, packets of {_values(settings)} values need {needed}")


def _socket_buffers() -> Check:
    """Ask the kernel for the buffers that agents and soft switches ask for."""
    try:
        from switchml.dataplane.softswitch._native import UDP_PORT_BUFFER_BYTES
        from switchml.host_agent._engine import SOCKET_BUFFER_BYTES
    except ImportError:  # which another check reports
        return Check("socket buffers", NOT_FOUND, "unknown without the native modules", "Install these first.")
    wanted = max(SOCKET_BUFFER_BYTES, UDP_PORT_BUFFER_BYTES)
    granted = {
        "rmem_max": _granted(socket.SO_RCVBUF, _SO_RCVBUFFORCE, wanted),
        "wmem_max": _granted(socket.SO_SNDBUF, _SO_SNDBUFFORCE, wanted),
    }
    short = [f"net.core.{limit}={wanted}" for limit, size in granted.items() if size < wanted]
    if short:
        found = (
            f"{min(granted.values())} bytes instead of {wanted}: over UDP, larger bursts overflow and are sent again"
        )
        remedy = f"As root on this machine, outside of any container: `sysctl -w {' '.join(short)}`"
        return Check("socket buffers", WARNING, found, remedy)
    return Check("socket buffers", OK, f"this user gets {wanted} bytes")


def _granted(option: int, force: int, wanted: int) -> int:
    """Return the size of the buffer that a UDP socket gets; root's may exceed the limit."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, force, wanted)
        except PermissionError:
            probe.setsockopt(socket.SOL_SOCKET, option, wanted)
        return probe.getsockopt(socket.SOL_SOCKET, option) // 2  # the kernel doubles it for its own data


def _cpus() -> Check:
    count = len(os.sched_getaffinity(0))
    if count < 2:
        return Check("CPUs", WARNING, f"{count}", "Switch, agent and workers share it; expect low speed.")
    return Check("CPUs", OK, f"{count}")


def _namespaces() -> Check:
    try:
        require_privileges()
    except NamespaceError as error:
        return Check("network namespaces", NOT_FOUND, str(error), "Only `up --switch` needs them: run it as root.")
    return Check("network namespaces", OK, "this process has the privileges to create them")


def _optional_programs() -> Iterable[Check]:
    versions = found_versions()
    for name, purpose in _OPTIONAL_PROGRAMS:
        if name in versions:
            yield Check(name, OK, compared(name, versions[name]))
        else:
            yield Check(name, NOT_FOUND, "not on PATH, or without a version", f"Only {purpose}.")


def _package(name: str, extra: str, purpose: str) -> Check:
    """Look for an installed package without importing it, which would take seconds."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(name, NOT_FOUND, "not installed", f"Only {purpose} needs it: `{install_command(extra)}`.")
    required = _requirement(name)
    if not _is_within(version, required):
        found = f"{version}, and this version of SwitchML is tested with {required}"
        return Check(name, WARNING, found, f"`{install_command(extra)}` installs it; only {purpose} needs it.")
    return Check(name, OK, compared(name, version.partition("+")[0]))


def _requirement(name: str) -> str:
    """Return the versions of a package that SwitchML's metadata asks for, such as ">=2.13,<2.14"."""
    asked = (re.match(rf"{re.escape(name)}([<>=][^;]*)", line) for line in metadata.requires("switchml") or ())
    return next((found[1].strip() for found in asked if found), "")


def _is_within(version: str, required: str) -> bool:
    """Return whether a version is not below a bound with >=, and below one with <; others are ignored."""
    have = numbers(version)
    bounds = re.findall(r"(>=|<)\s*([0-9.]+)", required)
    return all(have >= numbers(bound) if relation == ">=" else have < numbers(bound) for relation, bound in bounds)


def _transport(name: str, kind: Literal["dpdk", "xdp"]) -> Check:
    try:
        require_built(kind)
    except OSError as error:
        return Check(name, NOT_FOUND, str(error), f"Only --transport {kind} and --{kind}-port need it.")
    return Check(name, OK, f"built in: --transport {kind}, --{kind}-port")


def _rdma() -> Iterable[Check]:
    try:
        ports = list_rdma_ports()
    except OSError as error:
        yield Check("RDMA", NOT_FOUND, str(error), "Only --transport rdma needs it.")
        return
    if not ports:
        yield Check("RDMA", OK, "built in: --transport rdma; this machine has no RDMA device")
    for port in ports:
        addresses = ", ".join(port.addresses) or "no RoCEv2 address"
        found = f"{port.driver or 'software'}, {port.state}, messages of {port.largest_message} bytes, {addresses}"
        usable = port.state == "active" and port.addresses
        remedy = "" if usable else "Give its network interface an IPv4 address, and set it up."
        yield Check(f"RDMA {port.name}", OK if usable else WARNING, found if port.addresses else port.state, remedy)
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if ports and 0 <= soft < _LOCKED_BYTES:
        found = f"{soft >> 10} KiB may be locked, and a job takes about {_LOCKED_BYTES >> 20} MiB"
        yield Check(
            "RDMA memory", WARNING, found, "Raise the limit: ulimit -l, or LimitMEMLOCK= of the agent's service."
        )


def _fabric(settings: Settings) -> Iterable[Check]:
    address = settings.controller
    try:
        status = inspect(RunDirectory(settings.run_dir))
    except OperationError as error:
        yield Check("fabric", FAILURE, str(error), "Correct this, or choose another run directory with --run-dir.")
        return
    left = ", ".join(process.name for process in orphans(settings.run_dir))
    if status.fabric is None and left:
        found = f"{settings.run_dir / 'fabric.json'} is missing, but processes that it listed still run: {left}"
        yield Check("fabric", FAILURE, found, "`switchml-ctl down` ends them.")
    elif status.fabric is None:
        yield Check("fabric", NOT_FOUND, "none in the run directory", "`switchml-ctl up` starts one.")
    elif status.state == "running":
        yield Check("fabric", OK, f"all {len(status.fabric.processes)} processes run")
        yield from (_agent_socket(agent["name"], Path(agent["socket"])) for agent in status.fabric.agents)
        address = address or status.fabric.controller
    else:
        yield _broken(status.fabric, [process.name for process in status.dead])
        if status.fabric.controller_lives:
            address = address or status.fabric.controller
    if address is not None:
        yield from _controller(settings, address)


def _broken(fabric: Fabric, dead: list[str]) -> Check:
    found = f"{', '.join(dead)} has ended" if dead else "the start of the fabric did not finish"
    return Check("fabric", FAILURE, found, f"Logs are in {fabric.run_directory.logs}; `switchml-ctl down`, then `up`.")


def _agent_socket(name: str, path: Path) -> Check:
    try:
        status = path.stat()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            probe.settimeout(1.0)
            probe.connect(str(path))
    except OSError as error:
        remedy = "Is the agent running, as this user?" if error.errno != errno.EACCES else "Run as the agent's user."
        return Check(name, FAILURE, f"{path}: {error.strerror or error}", remedy)
    if stat.S_IMODE(status.st_mode) & 0o007:
        return Check(name, WARNING, f"{path} is open to every user", f"`chmod o-rwx {path}`")
    return Check(name, OK, f"{path} answers")


def _controller(settings: Settings, address: str) -> Iterable[Check]:
    try:
        with connect(settings, address) as client:
            info = client.info()
            switches = client.list_switches()
            agents = client.list_agents()
    except ControllerError as error:
        yield Check("controller", FAILURE, str(error), "Is it running, and is the address right? See its log.")
        return
    if info.version != VERSION:
        found = f"{address} has version {info.version}, this program {VERSION}"
        yield Check("controller", FAILURE, found, "Install the same version everywhere.")
    else:
        yield Check("controller", OK, f"{address}, version {info.version}")
    for switch in switches:
        if switch.connected:
            found = f"{switch.target} at {switch.control_address}, {switch.slots_free} slots free"
            yield Check(switch.name, OK, found)
        else:
            found = f"{switch.control_address}: {switch.failure or 'not connected'}"
            remedy = "Is the switch running, and is its control address in the controller's configuration right?"
            yield Check(switch.name, FAILURE, found, remedy)
    live = [agent for agent in agents if agent.live]
    if not live:
        yield Check("agents", WARNING, "no agent is registered", "Start switchml-agent on every worker host.")
    for agent in live:
        registration = agent.registration
        status = OK if registration.version == VERSION else FAILURE
        remedy = "" if status == OK else "Install the same version everywhere."
        found = f"on {registration.host}, {registration.address}, version {registration.version}"
        yield Check(agent.name, status, found, remedy)
