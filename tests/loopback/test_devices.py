"""Errors of DPDK's environment and devices, and of AF_XDP: they say what to do. Each test uses a separate process."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from switchml.dataplane.devices import built, check_devargs
from tests.support.soft_switch import command

EAL = "--no-huge -m 100"
needs_dpdk = pytest.mark.skipif(not built("dpdk"), reason="skipped: built without libdpdk-dev")
needs_xdp = pytest.mark.skipif(not built("xdp"), reason="skipped: built without libxdp-dev")


def python(program: str) -> str:
    """Return the output of a program that can use `attempt(function, *arguments)`, which prints a call's outcome."""
    begin = """
import os
from switchml.dataplane.devices import open_dpdk, open_xdp
def attempt(function, *arguments):
    try:
        print("->", function(*arguments).description, flush=True)
    except (OSError, ValueError) as error:
        print("->", type(error).__name__, error, flush=True)
"""
    ended = subprocess.run([sys.executable, "-c", begin + program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@needs_dpdk
def test_the_environment_starts_once_and_leaves_threads_and_files_alone() -> None:
    program = f"""
before = os.sched_getaffinity(0)
first = open_dpdk("net_null0", "{EAL}")  # which stays open
print("->", first.description)
attempt(open_dpdk, "net_null0", "{EAL}")
attempt(open_dpdk, "net_null1", "{EAL}", 9000)
attempt(open_dpdk, "net_null2", "--no-huge -m 200")
attempt(open_dpdk, "net_nothing0", "{EAL}")
print("->", os.sched_getaffinity(0) == before, os.getpid())
"""
    told = [line[3:] for line in python(program).splitlines() if line.startswith("-> ")]
    assert told[0].startswith("software checksums")
    assert told[1] == "ValueError DPDK's net_null0 is open already in this process"
    assert "MTU of 9000" in told[2] or told[2].startswith("software checksums")
    assert told[3] == (f"ValueError DPDK already runs in this process, with `{EAL}`; its arguments cannot be changed")
    assert told[4].startswith("ValueError DPDK cannot open net_nothing0; DPDK's own messages above say why. Name")
    same, pid = told[5].split()
    assert same == "True"
    assert not list(Path("/var/run/dpdk").glob(f"switchml-{pid}*"))


@needs_dpdk
def test_an_environment_that_does_not_start_is_an_error_that_says_what_to_do() -> None:
    program = """
attempt(open_dpdk, "net_null0", "--help")
attempt(open_dpdk, "net_null0", "'")
attempt(open_dpdk, "net_null0", "--no-huge -m 64 --in-memory --huge-dir /nowhere --no-such-option")
attempt(open_dpdk, "net_null0", "--no-huge -m 64")
"""
    told = [line[3:] for line in python(program).splitlines() if line.startswith("-> ")]
    assert told[0].startswith("ValueError DPDK's --help would end this process")
    assert "No closing quotation" in told[1]
    assert "DPDK does not start with `switchml " in told[2]
    assert "--no-huge" in told[2]
    assert "Only a new process can try again" in told[2]
    assert "cannot be started again" in told[3]


@needs_dpdk
def test_a_socket_that_a_killed_switch_left_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "memif.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left:
        left.bind(str(path))
    device = f"net_memif%d,role=server,id=%d,socket={path},socket-abstract=no"
    program = "".join(f'attempt(open_dpdk, "{device % (number, number)}", "{EAL}")\n' for number in (0, 1))
    told = [line for line in python(program).splitlines() if line.startswith("-> ")]
    assert told == ["-> software checksums, payloads sent from where they are, no receive interrupts"] * 2


@pytest.mark.parametrize(
    ("devargs", "words"),
    [
        ("net_memif0,rol=server", "'rol' is not an option of net_memif with a value; it has id=, role="),
        ("net_memif0,role", "'role' is not an option of net_memif with a value"),
        ("net_memif0,role=server,socket=/nowhere/s,socket-abstract=no", "no directory /nowhere to create"),
        ("net_memif0,socket=/nowhere/s,socket-abstract=no", "the socket /nowhere/s does not exist; start the switch"),
        ("net_af_packet0,iface=nosuch0", "there is no network interface 'nosuch0'"),
        ("net_af_packet0", "there is no network interface ''"),
    ],
)
def test_options_of_virtual_devices_that_dpdk_would_pass_over(devargs: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        check_devargs(devargs)


@needs_xdp
def test_an_interface_that_is_not_there() -> None:
    assert "ValueError there is no network interface 'nosuch0'; `ip link` lists them" in python(
        'attempt(open_xdp, "nosuch0")'
    )


def test_a_build_without_the_libraries_says_how_to_get_them() -> None:
    program = """
import sys
sys.modules["switchml.dataplane._dpdk"] = sys.modules["switchml.dataplane._xdp"] = None  # as if they had not been built
attempt(open_dpdk, "net_null0")
attempt(open_xdp, "eth0")
"""
    first, second = python(program).splitlines()
    assert "this build of SwitchML has no DPDK" in first
    assert "apt-get install libdpdk-dev pkg-config g++) and compile SwitchML: " in first
    assert "apt-get install libxdp-dev libbpf-dev pkg-config" in second


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--dpdk-port", "1="), "names no device"),
        (("--xdp-port", "x=eth0"), "is not PORT=INTERFACE"),
        (("--xdp-port", "1="), "names no interface"),
        (("--xdp-port", "1=nosuch0"), "nosuch0" if built("xdp") else "this build of SwitchML has no AF_XDP"),
    ],
)
def test_ports_of_the_switch_that_cannot_be(option: tuple[str, ...], words: str) -> None:
    ended = subprocess.run(command("--grpc", "127.0.0.1:0", *option), capture_output=True, text=True, timeout=60)
    assert ended.returncode in (1, 2)
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


@needs_xdp
@pytest.mark.skipif(os.geteuid() != 0, reason="skipped: AF_XDP needs root")
def test_a_second_program_on_an_interface_is_refused() -> None:
    told = python('first = open_xdp("lo")\nprint(first.description)\nattempt(open_xdp, "lo")').splitlines()
    assert "XDP program run by the kernel" in told[0]
    assert told[1].startswith("-> OSError") or told[1].startswith("-> ")
    assert "lo" in told[1]
