"""Run a program with the sockets that a fabric's keeper of ports holds, as a service manager does (sd_listen_fds(3)).

with_held_ports.py KEEPER COMMAND...: KEEPER is its process id.
"""

import ctypes
import fcntl
import os
import sys
from pathlib import Path
from typing import Final

_PIDFD_GETFD: Final = 438  # the same number on all architectures
_FIRST: Final = 3
_ABOVE: Final = 200  # the numbers that the program gets


def sockets_of(pid: int) -> list[int]:
    """Return duplicates of a process's sockets, except its standard input."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    process = os.pidfd_open(pid)
    found = []
    for entry in sorted(Path(f"/proc/{pid}/fd").iterdir(), key=lambda entry: int(entry.name)):
        if entry.name != "0" and str(entry.readlink()).startswith("socket:"):
            duplicate = call(_PIDFD_GETFD, process, int(entry.name), 0)
            if duplicate < 0:
                raise OSError(ctypes.get_errno(), f"pidfd_getfd: {os.strerror(ctypes.get_errno())}")
            found.append(duplicate)
    return found


def main() -> None:
    """Replace this process by the program."""
    _, keeper, *command = sys.argv
    held = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for one in sockets_of(int(keeper))]
    for number, one in enumerate(held, start=_FIRST):
        os.dup2(one, number)
    environment = os.environ | {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(held))}
    os.execvpe(command[0], command, environment)


if __name__ == "__main__":
    main()
