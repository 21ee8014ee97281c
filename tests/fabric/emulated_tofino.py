"""A fabric with the emulated Tofino: controller, agents and soft switches as on real hosts, at loopback addresses.

The emulator's ports carry Ethernet frames; agents and soft switches send UDP datagrams. A relay in this process has the
emulator's address: it puts each datagram into a frame for the emulator, and takes what it sends out of its frames.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from types import TracebackType

from switchml.dataplane.constants import PROTOCOL_UDP_PORT
from tests.support.fabric_harness import SCRIPTS, Ctl, wait_until

VALUES = 64  # of the program
_DEVICE_PORTS = {1: 60, 2: 56}  # of the first channels of connectors 1 and 2 of the emulated board
_TOFINO = 254  # the last byte of its address
_TOFINO_MAC = 0x0200000000FE
_NODE_MAC = 0x020000000000  # and the last byte of the address of the agent or soft switch
_HEADERS = 14 + 20 + 8  # Ethernet, IPv4, UDP
_LARGEST = 65535


@dataclass(frozen=True)
class Place:
    """The place of the emulated Tofino in a fabric.

    `top` is the switch above all others. `neighbours` are what ports 1 and 2 of the Tofino lead to, `soft` the soft
    switches with the parent and the parent's port of each, and `agents` the switch and the switch's port of each.
    Agents and soft switches are named by the last byte of their addresses.
    """

    top: str
    neighbours: tuple[int, int]
    agents: dict[int, tuple[str, int]]
    soft: dict[int, tuple[str, int] | None] = field(default_factory=dict)
    parent: str = ""  # of the Tofino, which is then at its port 1 and reached through port 2


ALONE = Place(top="t1", neighbours=(1, 2), agents={1: ("t1", 1), 2: ("t1", 2)})
SPINE = Place(top="t1", neighbours=(11, 12), soft={11: ("t1", 1), 12: ("t1", 2)}, agents={1: ("n11", 1), 2: ("n12", 1)})
LEAF = Place(
    top="n11",
    neighbours=(1, 11),
    soft={11: None, 12: ("n11", 1)},
    agents={1: ("t1", 1), 2: ("n12", 1)},
    parent="n11",
)


class EmulatedTofino:
    """The processes of the fabric and the relay; ``ctl`` is made to use their controller."""

    def __init__(self, ctl: Ctl, place: Place = ALONE) -> None:
        self._ctl = ctl
        self._place = place
        self._directory = ctl.run_dir.parent / "tofino"
        # Addresses that another test that runs at the same time does not use.
        self._network = IPv4Address(f"127.{1 + os.getpid() % 200}.77.0")
        self._stack = ExitStack()

    def __enter__(self) -> EmulatedTofino:
        self._directory.mkdir()
        with ExitStack() as stack:
            control = self._free_address(_TOFINO)
            neighbours = {port: self._address(node) for port, node in enumerate(self._place.neighbours, 1)}
            relay = stack.enter_context(_Relay(self._directory, self._address(_TOFINO), neighbours))
            emulator = [sys.executable, "-m", "ptf_tests.tofino_emulator.daemon", "--grpc", control]
            self._start(stack, "emulator", [*emulator, *relay.options])
            tables = [self._tofino(control), *(self._start_soft(stack, node) for node in self._place.soft)]
            controller = self._start_controller(stack, "".join(tables))
            for node in self._place.agents:
                self._start_agent(stack, node, controller)
            self._ctl.environment["SWITCHML_CONTROLLER"] = controller
            wait_until(self._is_connected, "the controller is connected to all switches")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _address(self, node: int) -> str:
        return str(self._network + node)

    def _free_address(self, node: int) -> str:
        with socket.socket() as probe:
            probe.bind((self._address(node), 0))
            return f"{self._address(node)}:{probe.getsockname()[1]}"

    def _tofino(self, control: str) -> str:
        """Return its table in the controller's configuration."""
        ports = [f'{{number = {number}, name = "{number}/0", speed = "100G"}}' for number in _DEVICE_PORTS]
        ports.append('{name = "68", role = "recirculation"}')
        parent = f'parent = {{switch = "{self._place.parent}", port = 1, uplink = 2}}\n' if self._place.parent else ""
        return (
            f'[[switches]]\nname = "t1"\ntarget = "tofino"\nmac = "{_mac(_TOFINO_MAC)}"\nbfrt = "{control}"\n'
            f'address = "{self._address(_TOFINO)}"\nports = [{", ".join(ports)}]\n{parent}'
        )

    def _start_soft(self, stack: ExitStack, node: int) -> str:
        """Start a soft switch and return its table in the controller's configuration."""
        control, name, parent = self._free_address(node), f"n{node}", self._place.soft[node]
        command = [str(SCRIPTS / "switchml-switch"), "--grpc", control, "--values", str(VALUES)]
        ready = json.loads(self._start(stack, name, [*command, "--udp-port", f"1={self._address(node)}:0"]).read_text())
        above = f'parent = {{switch = "{parent[0]}", port = {parent[1]}, uplink = 1}}\n' if parent else ""
        return (
            f'[[switches]]\nname = "{name}"\ntarget = "soft"\nmac = "{_mac(_NODE_MAC + node)}"\nudp_ports = true\n'
            f'p4runtime = "{control}"\naddress = "{self._address(node)}"\nvalues_per_packet = {VALUES}\n'
            f"udp_port = {ready['ports']['1']['udp_port']}\n{above}"
        )

    def _start_controller(self, stack: ExitStack, tables: str) -> str:
        """Start the controller and return its address."""
        address = f"unix:{self._directory / 'controller.sock'}"
        configuration = self._directory / "controller.toml"
        configuration.write_text(tables)
        command = [str(SCRIPTS / "switchml-controller"), "--config", str(configuration), "--listen", address]
        self._start(stack, "controller", [*command, "--store", str(self._directory / "controller.sqlite")])
        return address

    def _start_agent(self, stack: ExitStack, node: int, controller: str) -> None:
        name, (switch, port) = f"h{node}", self._place.agents[node]
        agent = [str(SCRIPTS / "switchml-agent"), "--controller", controller, "--name", name, "--transport", "udp"]
        agent += ["--address", self._address(node)]
        agent += ["--mac", _mac(_NODE_MAC + node)] if switch == "t1" else []
        agent += ["--switch", switch, "--switch-port", str(port), "--socket", str(self._directory / f"{name}.agent")]
        self._start(stack, name, agent)

    def _start(self, stack: ExitStack, name: str, command: list[str]) -> Path:
        """Start a daemon and wait until it is ready; return the file that it then writes."""
        ready = self._directory / f"{name}.ready"
        log = stack.enter_context((self._directory / f"{name}.log").open("wb"))
        process = subprocess.Popen(
            [*command, "--ready-file", str(ready)], env=self._ctl.environment, stdout=log, stderr=log
        )
        stack.callback(process.wait, 20)
        stack.callback(process.send_signal, signal.SIGTERM)
        wait_until(lambda: ready.exists() or process.poll() is not None, f"{name} is ready")
        assert process.poll() is None, Path(log.name).read_text()
        return ready

    def _is_connected(self) -> bool:
        return all(switch["connected"] for switch in self._ctl.json("switch", "list")["switches"])


class _Relay:
    """Moves datagrams of the neighbours into frames of the Tofino and back; a frame port is a pair of Unix sockets."""

    def __init__(self, directory: Path, tofino: str, neighbours: dict[int, str]) -> None:
        self._directory = directory
        self._tofino = tofino
        self._ports = {address: port for port, address in neighbours.items()}
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._frames = {number: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for number in neighbours}
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)

    @property
    def options(self) -> list[str]:
        """Return the options of the emulator for its frame ports."""
        pairs = {number: (self._path("tofino", number), self._path("neighbour", number)) for number in self._frames}
        return [f"--frame-port={_DEVICE_PORTS[number]}={ours},{peer}" for number, (ours, peer) in pairs.items()]

    def __enter__(self) -> _Relay:
        self._udp.bind((self._tofino, PROTOCOL_UDP_PORT))
        for number, own in self._frames.items():
            own.bind(self._path("neighbour", number))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wake.send(b"end")
        self._thread.join(20)
        for one in (self._udp, *self._frames.values(), self._wake, self._woken):
            one.close()

    def _path(self, end: str, number: int) -> str:
        return str(self._directory / f"{end}{number}.sock")

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for one in (self._udp, *self._frames.values(), self._woken):
                selector.register(one, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._woken:
                        return
                    if key.fileobj is self._udp:
                        self._to_tofino(*self._udp.recvfrom(_LARGEST))
                    else:
                        self._to_neighbour(os.read(key.fd, _LARGEST))

    def _to_tofino(self, payload: bytes, sender: tuple[str, int]) -> None:
        address, udp_port = sender
        number = self._ports[address]
        sender_mac = _NODE_MAC + IPv4Address(address).packed[-1]
        ethernet = _TOFINO_MAC.to_bytes(6, "big") + sender_mac.to_bytes(6, "big") + b"\x08\x00"
        ipv4 = _ipv4(address, self._tofino, 8 + len(payload))
        udp = struct.pack("!HHHH", udp_port, PROTOCOL_UDP_PORT, 8 + len(payload), 0)
        self._frames[number].sendto(ethernet + ipv4 + udp + payload, self._path("tofino", number))

    def _to_neighbour(self, frame: bytes) -> None:
        port, length = struct.unpack_from("!HH", frame, _HEADERS - 6)
        receiver = socket.inet_ntoa(frame[_HEADERS - 12 : _HEADERS - 8])
        self._udp.sendto(frame[_HEADERS : _HEADERS - 8 + length], (receiver, port))


def _mac(number: int) -> str:
    return number.to_bytes(6, "big").hex(":")


def _ipv4(source: str, destination: str, length: int) -> bytes:
    """Return the IPv4 header of a UDP datagram of this length."""
    addresses = socket.inet_aton(source) + socket.inet_aton(destination)
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0x4000, 64, socket.IPPROTO_UDP, 0) + addresses
    total: int = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return header[:10] + (total ^ 0xFFFF).to_bytes(2, "big") + header[12:]
