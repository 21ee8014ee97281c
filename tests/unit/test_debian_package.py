"""The Debian package, without building it: its version, and the units that its removal disables."""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from tools.debian.__main__ import SCRIPTS, package_version

INSTANCE = "switchml-agent@alice.service"
DISABLED = [f"disable {INSTANCE}", "disable switchml-controller.service"]


def test_candidates_are_older_than_their_release() -> None:
    versions = [package_version(version, "debian12") for version in ("0.2.0a1", "0.2.0b2", "0.2.0rc1", "0.2.0")]
    assert versions[2:] == ["0.2.0~rc1-1~debian12", "0.2.0-1~debian12"]
    if shutil.which("dpkg") is None:
        pytest.skip("dpkg, which compares them, is missing")
    for older, newer in pairwise(versions):
        subprocess.run(["dpkg", "--compare-versions", older, "lt", newer], check=True)


@pytest.mark.parametrize(
    ("action", "runs", "called"),
    [
        ("remove", True, ["stop switchml-*.service", *DISABLED]),
        ("remove", False, DISABLED),
        ("upgrade", True, []),
    ],
    ids=["remove", "remove-in-a-chroot", "upgrade"],
)
def test_a_removal_disables_all_that_was_enabled(tmp_path: Path, action: str, runs: bool, called: list[str]) -> None:
    """With a systemctl that does as it is told: the links of a unit are gone after it was disabled."""
    for folder in ("multi-user.target.wants", "other.target.wants"):
        (tmp_path / "etc/systemd/system" / folder).mkdir(parents=True)
    enabled = tmp_path / "etc/systemd/system/multi-user.target.wants"
    for name in (INSTANCE, "switchml-controller.service", "ssh.service"):
        (enabled / name).symlink_to(f"/usr/lib/systemd/system/{name}")
    (tmp_path / "etc/systemd/system/other.target.wants" / INSTANCE).symlink_to(f"/usr/lib/systemd/system/{INSTANCE}")
    if runs:
        (tmp_path / "run/systemd/system").mkdir(parents=True)
    program = tmp_path / "systemctl"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/called\n[ "$1" = stop ] || rm {tmp_path}/etc/systemd/system/*/"$2"\n'
    )
    program.chmod(0o755)
    (tmp_path / "called").touch()

    script = (SCRIPTS / "prerm").read_text()
    for path in ("/run/systemd/system", "/etc/systemd/system"):
        assert path in script
        script = script.replace(path, f"{tmp_path}{path}")
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", script, "prerm", action], env=variables, check=True, timeout=60)
    assert (tmp_path / "called").read_text().splitlines() == called
