"""A network of this run's own: nothing of it is left behind, however the run ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["enter", "make_veth_pairs"]

_INSIDE = "SWITCHML_PTF_NAMESPACE"


def enter(module: str, arguments: Sequence[str]) -> None:
    """Go on as ``python -m module`` with these arguments in network and process namespaces of our own.

    Returns when this process already is there. Otherwise it is replaced, so that a signal reaches what runs. The
    kernel ends every process of the namespaces with the first one, and the interfaces vanish with the last process:
    a crash leaves nothing for the next run to remove. Without root a user namespace is needed, which the kernel must
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
    """Make one pair of interfaces for each two names, MTU 9000, without IPv6, and set them and the loopback up.

    Raises subprocess.CalledProcessError when ``ip`` fails; its message is on stderr.
    """
    # Otherwise the kernel would send router solicitations of its own into the tests.
    for scope in ("all", "default"):
        setting = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
        if setting.read_text().strip() != "1":  # in a container it is set before, and cannot be written
            setting.write_text("1")
    lines = ["link set dev lo up"]
    for one, other in names:
        lines.append(f"link add {one} mtu 9000 type veth peer name {other} mtu 9000")
        lines += [f"link set dev {name} up" for name in (one, other)]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)
