"""A Linux guest under QEMU's emulation whose RDMA card is the kernel's rdma_rxe, and whose cable is a pair of sockets.

The cable ends at a frame port of the soft switch: both put one Ethernet frame into a datagram. Neither root nor KVM is
needed, only Debian's packages. The kernel is Debian's own, unpacked into a directory and not installed: the one that
SWITCHML_RDMA_KERNEL names, or build/rdma/kernel, which is filled by `apt-get download`.
"""

from __future__ import annotations

import fcntl
import json
import lzma
import os
import platform
import re
import select
import shutil
import socket
import stat
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from ptf_tests.frames import Host, mac_text

ROOT = Path(__file__).parents[2]
HOST_SEEN_BY_GUEST = "10.0.2.2"  # QEMU's
SECONDS = 120  # for anything that is waited for: only what hangs takes as long
CACHE = ROOT / "build" / "rdma"
KERNEL_VARIABLE = "SWITCHML_RDMA_KERNEL"
PACKAGES = "qemu-system-x86 busybox-static iproute2 libibverbs-dev ibverbs-providers"
_QEMU = "qemu-system-x86_64"
PROGRAMS = (_QEMU, "busybox", "rdma", "g++")
# The last one provides the kernel's "crc32", of which rdma_rxe only knows the name.
MODULES = ("virtio_pci", "virtio_net", "9pnet_virtio", "9p", "ib_uverbs", "rdma_rxe", "crc32_generic")
_DRIVER = Path("/etc/libibverbs.d/rxe.driver")
_HEADER = Path("/usr/include/infiniband/verbs.h")

# Its arguments: the MTU, the address with the length of its prefix, and the command. Its output is the console.
_INIT = """#!/bin/busybox sh
export PATH=/bin:/usr/bin:/sbin:/usr/sbin
/bin/busybox --install -s /bin
mtu=$1 address=$2
shift 2
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
(sleep 1800; poweroff -f) &  # if the test that has started the guest was killed
for module in $(cat /modules/order); do insmod /modules/$module.ko; done
ip link set lo up
ip link set eth0 mtu "$mtu" up
ip address add "$address" dev eth0
rdma link add rxe0 type rxe netdev eth0
if [ -e /sys/class/net/eth1 ]; then
  ip address add 10.0.2.15/24 dev eth1
  ip link set eth1 up
fi
if [ "$1" = chroot ]; then
  mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 root "$2"
  mount -t proc proc "$2/proc"
  mount -t devtmpfs devtmpfs "$2/dev"
  mkdir -p "$2/dev/shm"
  mount -t tmpfs tmpfs "$2/dev/shm"
  mount -t tmpfs tmpfs "$2/run"
  mount -t sysfs sysfs "$2/sys"
fi
"$@"
poweroff -f
"""


class GuestUnavailable(Exception):
    """This machine cannot run the guest; the text says why."""


class GuestError(Exception):
    """The guest has failed to start, has ended, or does not report; the text has the end of its console."""


def check_available() -> None:
    """Raise GuestUnavailable if a program or library is missing."""
    if platform.machine() != "x86_64":
        raise GuestUnavailable(f"the guest is an x86-64 machine with this machine's programs, not {platform.machine()}")
    missing = [program for program in PROGRAMS if _program(program) is None]
    missing += [str(file) for file in (_DRIVER, _HEADER) if not file.exists()]
    missing += [] if _provider() else ["librxe"]
    if missing:
        raise GuestUnavailable(f"needs {', '.join(missing)}: apt-get install {PACKAGES}")
    if "dgram" not in _output([_QEMU, "-netdev", "help"]).split():
        raise GuestUnavailable(f"needs {_QEMU} 7.2 or later, with sockets of datagrams")


def kernel() -> Path:
    """Return the directory with an unpacked kernel package. Raises GuestUnavailable."""
    given = os.environ.get(KERNEL_VARIABLE)
    directory = Path(given) if given else CACHE / "kernel"
    if not given:
        CACHE.mkdir(parents=True, exist_ok=True)
        with (CACHE / "lock").open("w") as lock:  # tests run in several processes
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not directory.exists():
                _download(directory)
    if len(list(directory.glob("boot/vmlinuz-*"))) != 1:
        raise GuestUnavailable(f"{directory} is not an unpacked kernel package, with one file boot/vmlinuz-*")
    return directory


def _download(directory: Path) -> None:
    """Unpack the kernel that linux-image-amd64 depends on, without installing it."""
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        try:
            depends = _output(["apt-cache", "depends", "--important", "linux-image-amd64"])
            package = re.findall(r"Depends: (linux-image-\S+)", depends)[0]
            _output(["apt-get", "download", package], scratch)
            (file,) = Path(scratch).glob("*.deb")
            _output(["dpkg-deb", "--extract", str(file), f"{scratch}/kernel"])
        except (OSError, subprocess.SubprocessError, IndexError) as error:
            reason = f"needs a kernel: apt-get download linux-image-...-amd64 failed here ({error})"
            raise GuestUnavailable(f"{reason}; {KERNEL_VARIABLE} may name a directory with an unpacked one") from None
        Path(scratch, "kernel").rename(directory)


def _output(command: Sequence[str], directory: str | None = None) -> str:
    return subprocess.run(
        command, cwd=directory, check=True, capture_output=True, text=True, timeout=5 * SECONDS
    ).stdout


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def _provider() -> Path | None:
    return next(Path("/usr/lib").glob("*/libibverbs/librxe-*.so"), None)


# ---- the initial file system -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Image:
    """The files that the machine loads: the kernel, and the file system that it begins with."""

    linux: Path
    files: Path


def build_image(directory: Path, programs: Iterable[Path]) -> Image:
    """Write a kernel, and busybox, `rdma`, the programs, libraries and modules. Raises GuestUnavailable."""
    check_available()
    provider, busybox, rdma = _provider(), _program("busybox"), _program("rdma")
    assert provider
    assert busybox
    assert rdma
    package = kernel()
    files = {"init": _INIT.encode(), "bin/busybox": Path(busybox).read_bytes(), "bin/rdma": Path(rdma).read_bytes()}
    files |= {f"bin/{program.name}": program.read_bytes() for program in programs}
    for path in (_DRIVER, provider, *_libraries([provider, Path(busybox), Path(rdma), *programs])):
        files[str(path).removeprefix("/")] = path.read_bytes()
    modules = _modules(package)
    files |= {f"modules/{name}.ko": content for name, content in modules.items()}
    files["modules/order"] = "\n".join(modules).encode()
    image = Image(directory / "linux", directory / "files.cpio")
    image.linux.write_bytes(_linux(package))
    image.files.write_bytes(_archive(files, ["dev", "host", "proc", "sys"]))
    return image


def _linux(package: Path) -> bytes:
    """Return the kernel, decompressed if it is in xz: that takes half of the boot under emulation."""
    (file,) = package.glob("boot/vmlinuz-*")
    content = file.read_bytes()
    # The fields setup_sects, payload_offset and payload_length of Linux's boot protocol.
    start, length = struct.unpack_from("<II", content, 0x248)
    start += (content[0x1F1] + 1) * 512
    payload = content[start : start + length]
    # The size of the decompressed kernel, which Linux puts behind it, would be taken for a second stream.
    return lzma.LZMADecompressor().decompress(payload) if payload.startswith(b"\xfd7zXZ") else content


def _libraries(objects: Iterable[Path]) -> set[Path]:
    """Return the shared libraries that programs and libraries need, with the dynamic loader."""
    found: set[Path] = set()
    for one in objects:
        listed = subprocess.run(["ldd", one], capture_output=True, text=True, timeout=SECONDS, check=False).stdout
        found |= {Path(path) for path in re.findall(r"(/\S+) \(0x", listed)}
    return found


def _modules(directory: Path) -> dict[str, bytes]:
    """Return the kernel modules by name, each after those that it depends on."""
    paths = {path.name.partition(".")[0].replace("-", "_"): path for path in directory.glob("lib/modules/*/**/*.ko*")}
    chosen: dict[str, bytes] = {}

    def choose(name: str) -> None:
        content = paths[name].read_bytes()
        if paths[name].suffix == ".xz":
            content = lzma.decompress(content)
        depends = re.search(rb"\0depends=([^\0]*)\0", content)
        for other in depends[1].decode().split(",") if depends and depends[1] else ():
            if other not in chosen:
                choose(other)
        chosen[name] = content

    for name in MODULES:
        if name in paths and name not in chosen:  # what is not a module may be a part of the kernel
            choose(name)
    if "rdma_rxe" not in chosen:
        raise GuestUnavailable(f"the kernel in {directory} has no rdma_rxe")
    return chosen


def _archive(files: dict[str, bytes], directories: Iterable[str]) -> bytes:
    """Return a cpio archive in the format `newc`; everything in it can be executed."""
    above = {str(parent) for name in files for parent in Path(name).parents} - {"."}
    entries = [(name, stat.S_IFDIR | 0o755, b"") for name in sorted(above | set(directories))]
    entries += [(name, stat.S_IFREG | 0o755, content) for name, content in files.items()]
    archive = bytearray()
    for inode, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        fields = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        archive += b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        archive += bytes(-len(archive) % 4) + content
        archive += bytes(-len(archive) % 4)
    return bytes(archive)


# ---- the machine -----------------------------------------------------------------------------------------------------


class Guest:
    """A running guest. Its programs print lines of JSON on the console, and read lines from it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._console = self._unread = b""

    def report(self, seconds: float = SECONDS) -> dict[str, Any]:
        """Return the next line of JSON on the console, which comes within this time. Raises GuestError."""
        end = time.monotonic() + seconds
        while not (line := self._line(end)).startswith(b"{"):
            pass
        report: dict[str, Any] = json.loads(line)
        return report

    def _line(self, end: float) -> bytes:
        assert self._process.stdout is not None
        while b"\n" not in self._unread:
            if not select.select([self._process.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                raise GuestError(f"the guest has not reported in time\n{self._tail()}")
            text = os.read(self._process.stdout.fileno(), 65536)
            if not text:
                raise GuestError(f"the guest has ended\n{self._tail()}")
            self._console += text
            self._unread += text
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def say(self, line: str) -> None:
        """Write a line to the console, for the guest's program."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def wait(self) -> None:
        """Wait until the guest has switched itself off. Raises TimeoutExpired."""
        self._process.communicate(timeout=SECONDS)

    def _tail(self) -> str:
        return self._console[-4000:].decode(errors="replace")


@contextmanager
def running_guest(
    image: Image,
    command: Sequence[str],
    host: Host,
    cable: tuple[Path, Path],
    mtu: int,
    capture: Path | None = None,
    sees_host: bool = False,
    megabytes: int = 256,
) -> Iterator[Guest]:
    """Run a guest that executes a command, which `build_image` has put into the image, and then switches itself off.

    `cable` is the socket of a frame port, and the path to which that port sends. All frames are written to `capture`,
    in the format of pcap. After `chroot /host`, the command sees this machine's files, which it cannot change. If it
    `sees_host`, it reaches this machine's servers at HOST_SEEN_BY_GUEST.
    """
    port, peer = cable
    arguments = " ".join([str(mtu), f"{IPv4Address(host.ip)}/24", *command])
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
        own.bind(str(peer))
        # Only a connected socket may have more than net.unix.max_dgram_qlen frames waiting.
        own.connect(str(port))
        options = [
            *(
                "-machine",
                "q35",
                "-accel",
                "tcg",
                "-cpu",
                "max",
                "-m",
                str(megabytes),
                "-nodefaults",
                "-display",
                "none",
            ),
            *("-serial", "stdio", "-no-reboot", "-kernel", str(image.linux), "-initrd", str(image.files)),
            *("-append", f"console=ttyS0 quiet panic=-1 mitigations=off -- {arguments}"),
            *("-netdev", f"dgram,id=cable,local.type=fd,local.str={own.fileno()}"),
            *("-device", f"virtio-net-pci,netdev=cable,host_mtu={mtu},mac={mac_text(host.mac)}"),
        ]
        if command[0] == "chroot":
            options += ["-virtfs", "local,path=/,mount_tag=root,security_model=none,multidevs=remap,readonly=on"]
        if sees_host:
            options += ["-netdev", "user,id=host", "-device", "virtio-net-pci,netdev=host"]
        if capture:
            options += ["-object", f"filter-dump,id=capture,netdev=cable,file={capture}"]
        program = [_QEMU, *options]
        pipe = subprocess.PIPE
        try:
            with subprocess.Popen(
                program, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, pass_fds=[own.fileno()]
            ) as process:
                try:
                    yield Guest(process)
                finally:
                    process.kill()
        finally:
            peer.unlink()
