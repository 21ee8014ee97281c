"""The Debian package: installed, upgraded, removed and purged in a fresh Debian.

It needs root, mmdebstrap and a mirror of Debian, and takes minutes: `pytest --long tests/deb`.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "deb-test"
PROGRAMS = ("switchml-ctl", "switchml-controller", "switchml-agent", "switchml-switch")
UNITS = sorted(path.name for path in (ROOT / "systemd").glob("*.service"))

Shell = Callable[[str], str]

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def package() -> Path:
    """Build the package for this distribution."""
    missing = [name for name in ("dpkg-deb", "mmdebstrap", "g++") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root, and on Debian these packages: {', '.join(missing) or 'all are there'}")
    if not Path("/usr/bin/python3").exists():
        pytest.skip("python3 is missing: the package is for the distribution's own Python")
    command = [sys.executable, "-m", "tools.debian", "--output", str(BUILD)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def shell(package: Path) -> Iterator[Shell]:
    """Make a Debian with the distribution's Python and systemd, and without a compiler; run commands in it."""
    tree = BUILD / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    include = "--include=python3,systemd,procps"
    command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", include, release, str(tree)]
    subprocess.run(command, check=True, timeout=900)
    shutil.copy(package, tree / "switchml.deb")
    subprocess.run(["mount", "-t", "proc", "proc", str(tree / "proc")], check=True)

    def run(text: str) -> str:
        command = ["chroot", str(tree), "sh", "-c", text]
        variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        return done.stdout

    yield run
    subprocess.run(["umount", str(tree / "proc")], check=True)
    shutil.rmtree(tree)


def test_a_package_from_install_to_purge(shell: Shell) -> None:
    shell("dpkg --install /switchml.deb")
    assert shell("getent passwd switchml").startswith("switchml:")
    for program in PROGRAMS:
        assert "0." in shell(f"{program} --version")
    shell("switchml-ctl doctor || test $? -eq 1")  # it may find something wrong with this tree
    hint = "switchml/bin/pip install 'switchml[torch]=="
    assert hint in shell("COLUMNS=300 switchml-ctl doctor || test $? -eq 1")

    # C programs, the loader and shells find theirs.
    shell("ldconfig -p | grep -q 'libswitchml.so.0 ' && ldconfig -p | grep -q libnccl-net-switchml.so")
    shell("test -s /usr/include/switchml.h && grep -q complete /usr/share/bash-completion/completions/switchml-ctl")
    said = shell(f"cd /usr/lib/systemd/system && systemd-analyze verify --man=no {' '.join(UNITS)} 2>&1 || true")
    assert "switchml" not in said.replace("Failed to prepare filename", "")

    # One job, with all three processes of the package.
    shell("SWITCHML_RUN_DIR=/tmp/run switchml-ctl job start --workers 2 -- true")

    # An upgrade to the same version, and a removal, keep what the controller has stored.
    shell("mkdir -p /var/lib/switchml && touch /var/lib/switchml/controller.sqlite")
    assert "until you restart them" in shell("dpkg --install /switchml.deb")
    shell("systemctl enable switchml-agent@alice")
    shell("dpkg --remove switchml")
    shell("test ! -L /etc/systemd/system/multi-user.target.wants/switchml-agent@alice.service")
    shell("test ! -e /opt/switchml && test ! -e /usr/bin/switchml-ctl && test -e /var/lib/switchml/controller.sqlite")
    shell("dpkg --purge switchml")
    shell("test ! -e /var/lib/switchml && test ! -e /etc/switchml")
