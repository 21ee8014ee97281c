"""A fabric whose switch is the emulated Tofino: controller and agents as on real hosts, at loopback addresses.

The emulator's ports carry Ethernet frames, and the agents send UDP datagrams. A relay in this process has the switch's
address: it puts each datagram into a frame for the emulator, and takes the results out of their frames.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path
from types import TracebackType

from fabric_harness import SCRIPTS, Ctl, wait_until

from switchml.dataplane.constants import PROTOCOL_UDP_PORT

AGENTS = 2
VALUES = 64  # of the program
_DEVICE_PORTS = {1: 60, 2: 56}  # of the first channels of connectors 1 and 2 of the emulated board
_SWITCH_MAC = 0x0200000000FE
_HOST_MAC = 0x020000000000  # and the number of the host
_HEADERS = 14 + 20 + 8  # Ethernet, IPv4, UDP
_LARGEST = 65535


class EmulatedTofino:
    """The processes of the fabric and the relay; ``ctl`` is made to use their controller."""

    def __init__(self, ctl: Ctl) -> None:
        self._ctl = ctl
        self._directory = ctl.run_dir.parent / "tofino"
        # Addresses that another test that runs at the same time does not use.
        self._network = IPv4Address(f"127.{1 + os.getpid() % 200}.77.0")
        self._stack = ExitStack()

    def __enter__(self) -> EmulatedTofino:
        self._directory.mkdir()
        with ExitStack() as stack:
            control = self._free_address()
            controller = f"unix:{self._directory / 'controller.sock'}"
            relay = stack.enter_context(_Relay(self._directory, self._address(254), self._hosts()))
            emulator = [sys.executable, "-m", "ptf_tests.tofino_emulator.daemon", "--grpc", control]
            self._start(stack, "emulator", [*emulator, *relay.options])
            configuration = self._directory / "controller.toml"
            configuration.write_text(self._configuration(control))
            store = str(self._directory / "controller.sqlite")
            command = [str(SCRIPTS / "switchml-controller"), "--config", str(configuration)]
            self._start(stack, "controller", [*command, "--listen", controller, "--store", store])
            for number, address in self._hosts().items():
                agent = [str(SCRIPTS / "switchml-agent"), "--controller", controller, "--name", f"h{number}"]
                agent += ["--address", address, "--mac", _mac(_HOST_MAC + number), "--transport", "udp"]
                agent += ["--switch-port", str(number), "--socket", str(self._directory / f"h{number}.agent")]
                self._start(stack, f"h{number}", agent)
            self._ctl.environment["SWITCHML_CONTROLLER"] = controller
            wait_until(self._is_connected, "the controller is connected to the emulator")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _address(self, host: int) -> str:
        return str(self._network + host)

    def _hosts(self) -> dict[int, str]:
        return {number: self._address(number) for number in range(1, AGENTS + 1)}

    def _free_address(self) -> str:
        with socket.socket() as probe:
            probe.bind((self._address(254), 0))
            return f"{self._address(254)}:{probe.getsockname()[1]}"

    def _configuration(self, control: str) -> str:
        ports = [f'{{number = {number}, name = "{number}/0", speed = "100G"}}' for number in self._hosts()]
        ports.append('{name = "68", role = "recirculation"}')
        return (
            f'[[switches]]\nname = "t1"\ntarget = "tofino"\nmac = "{_mac(_SWITCH_MAC)}"\nbfrt = "{control}"\n'
            f'address = "{self._address(254)}"\nports = [{", ".join(ports)}]\n'
        )

    def _start(self, stack: ExitStack, name: str, command: list[str]) -> None:
        """Start a daemon and wait until it is ready."""
        ready = self._directory / f"{name}.ready"
        log = stack.enter_context((self._directory / f"{name}.log").open("wb"))
        process = subprocess.Popen(
            [*command, "--ready-file", str(ready)], env=self._ctl.environment, stdout=log, stderr=log
        )
        stack.callback(process.wait, 20)
        stack.callback(process.send_signal, signal.SIGTERM)
        wait_until(lambda: ready.exists() or process.poll() is not None, f"{name} is ready")
        assert process.poll() is None, Path(log.name).read_text()

    def _is_connected(self) -> bool:
        return bool(self._ctl.json("switch", "list")["switches"][0]["connected"])


class _Relay:
    """Moves datagrams of the agents into frames of the switch and back; a frame port is a pair of Unix sockets."""

    def __init__(self, directory: Path, switch: str, hosts: dict[int, str]) -> None:
        self._directory = directory
        self._switch = switch
        self._hosts = {address: number for number, address in hosts.items()}
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._frames = {number: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for number in hosts}
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)

    @property
    def options(self) -> list[str]:
        """Return the options of the emulator for its frame ports."""
        pairs = {number: (self._path("switch", number), self._path("host", number)) for number in self._frames}
        return [f"--frame-port={_DEVICE_PORTS[number]}={ours},{peer}" for number, (ours, peer) in pairs.items()]

    def __enter__(self) -> _Relay:
        self._udp.bind((self._switch, PROTOCOL_UDP_PORT))
        for number, own in self._frames.items():
            own.bind(self._path("host", number))
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
                        self._to_switch(*self._udp.recvfrom(_LARGEST))
                    else:
                        self._to_host(os.read(key.fd, _LARGEST))

    def _to_switch(self, payload: bytes, sender: tuple[str, int]) -> None:
        address, port = sender
        number = self._hosts[address]
        ethernet = _SWITCH_MAC.to_bytes(6, "big") + (_HOST_MAC + number).to_bytes(6, "big") + b"\x08\x00"
        ipv4 = _ipv4(address, self._switch, 8 + len(payload))
        udp = struct.pack("!HHHH", port, PROTOCOL_UDP_PORT, 8 + len(payload), 0)
        self._frames[number].sendto(ethernet + ipv4 + udp + payload, self._path("switch", number))

    def _to_host(self, frame: bytes) -> None:
        port, length = struct.unpack_from("!HH", frame, _HEADERS - 6)
        receiver = socket.inet_ntoa(frame[_HEADERS - 12 : _HEADERS - 8])
        self._udp.sendto(frame[_HEADERS : _HEADERS - 8 + length], (receiver, port))


def _mac(number: int) -> str:
    return number.to_bytes(6, "big").hex(":")


def _ipv4(source: str, destination: str, length: int) -> bytes:
    """Return the IPv4 header of a UDP datagram of this length."""
    addresses = socket.inet_aton(source) + socket.inet_aton(destination)
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0x4000, 64, socket.IPPROTO_UDP, 0) + addresses
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return header[:10] + (total ^ 0xFFFF).to_bytes(2, "big") + header[12:]
