"""A network for this run alone, which disappears however the run ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["enter", "make_veth_pairs"]

_INSIDE = "SWITCHML_PTF_NAMESPACE"


def enter(module: str, arguments: Sequence[str]) -> None:
    """Continue as ``python -m module`` with these arguments in new network and process namespaces.

    Returns if this process is that one already. Otherwise it is replaced, so that signals reach the new program. The
    kernel ends every process of the namespaces with the first one, and the interfaces vanish with the last process: a
    crash leaves nothing for the next run to remove. Without root this takes a user namespace, which the kernel must
    allow.
    """
    if _INSIDE in os.environ:
        return
    command = ["unshare", "--net", "--pid", "--fork", "--kill-child"]
    if os.geteuid() != 0:
        command.append("--map-root-user")
    command += [sys.executable, "-m", module, *arguments]
    os.execvpe(command[0], command, {**os.environ, _INSIDE: "1"})


def make_veth_pairs(names: Sequence[tuple[str, str]]) -> None:
    """Create one pair of interfaces for each pair of names, with MTU 9000 and without IPv6, and bring all up.

    Raises subprocess.CalledProcessError if ``ip`` fails; its message is on stderr.
    """
    # Otherwise the kernel would send router solicitations into the tests.
    for scope in ("all", "default"):
        setting = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
        if setting.read_text().strip() != "1":  # in a container it is set already, and cannot be written
            setting.write_text("1")
    lines = ["link set dev lo up"]
    for one, other in names:
        lines.append(f"link add {one} mtu 9000 type veth peer name {other} mtu 9000")
        lines += [f"link set dev {name} up" for name in (one, other)]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)
