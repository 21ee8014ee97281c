"""Run a command confined like a systemd unit, as far as a process can confine itself.

    python confined.py UNIT COMMAND...

The process gets no capabilities, no new privileges, no memory that is both writable and executable, and only the system
calls and address families that UNIT allows. Settings that need mounts (ProtectSystem=, PrivateDevices=) are ignored.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

NUMBERS = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")

_LIBC = ctypes.CDLL(None, use_errno=True)
_SET_SECCOMP, _DROP_CAPABILITY, _NO_NEW_PRIVILEGES, _SET_MDWE = 22, 24, 38, 65
_FILTER = 2
_MOST_CAPABILITIES = 64
_X86_64 = 0xC000003E
_X32 = 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _EAFNOSUPPORT = 1, 97


def settings(unit: Path) -> Iterator[tuple[str, str]]:
    """Yield the lines KEY=VALUE of a unit."""
    for line in unit.read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            yield key, value


def values(unit: Path, wanted: str) -> list[str]:
    return [value for key, value in settings(unit) if key == wanted]


def allowed_calls(unit: Path) -> set[str]:
    """Return the system calls that SystemCallFilter= allows: those of a list, without those of later lines."""
    shown = subprocess.run(["systemd-analyze", "syscall-filter"], capture_output=True, text=True, check=True).stdout
    sets: dict[str, list[str]] = {}
    for line in shown.splitlines():
        if re.fullmatch(r"@[\w-]+", line):
            members = sets[line] = []
        elif line.startswith("    ") and not line.lstrip().startswith("#") and sets:
            members.append(line.strip())

    def members_of(name: str) -> set[str]:
        return {call for one in sets[name] for call in members_of(one)} if name.startswith("@") else {name}

    allowed: set[str] = members_of("@default")
    for value in values(unit, "SystemCallFilter"):
        named = {call for name in value.lstrip("~").split() for call in members_of(name)}
        allowed = allowed - named if value.startswith("~") else allowed | named
    return allowed


def _program(unit: Path) -> bytes:
    """Return the filter of a unit for seccomp(2), in classic BPF."""
    numbers = {name: int(number) for name, number in re.findall(r"__NR_(\w+) (\d+)", NUMBERS.read_text())}
    families = [
        getattr(socket, name).value for value in values(unit, "RestrictAddressFamilies") for name in value.split()
    ]
    code = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, _X86_64), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _ERRNO | _EPERM)]
    for name in sorted(allowed_calls(unit) & numbers.keys() - {"socket"}):
        code += [(_EQUAL, 0, 1, numbers[name]), (_RETURN, 0, 0, _ALLOW)]
    code += [(_EQUAL, 1, 0, numbers["socket"]), (_RETURN, 0, 0, _ERRNO | _EPERM), (_LOAD, 0, 0, 16)]
    for family in families:
        code += [(_EQUAL, 0, 1, family), (_RETURN, 0, 0, _ALLOW)]
    code.append((_RETURN, 0, 0, _ERRNO | _EAFNOSUPPORT))
    return b"".join(struct.pack("=HBBI", *one) for one in code)


class _SockFprog(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _prctl(option: int, *arguments: int) -> None:
    if _LIBC.prctl(option, *map(ctypes.c_ulong, (*arguments, 0, 0, 0, 0)[:4])) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}): {os.strerror(error)}")


def confine(unit: Path) -> None:
    """Confine this process and the programs that it executes."""
    program = _program(unit)
    highest = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(highest + 1):
        _prctl(_DROP_CAPABILITY, capability)
    _prctl(_NO_NEW_PRIVILEGES, 1)
    _prctl(_SET_MDWE, 1)
    filtered = _SockFprog(len(program) // 8, program)
    _prctl(_SET_SECCOMP, _FILTER, ctypes.addressof(filtered))


if __name__ == "__main__":
    confine(Path(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
