"""Debian packages only for the tests, from the mirror of this machine's apt, without changing apt's lists."""

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class Missing(Exception):
    """This machine lacks something that the tests need; the message says what."""


@dataclass(frozen=True)
class Debian:
    """A mirror, and the release that this machine runs."""

    mirror: str
    release: str

    def install(self, package: str, directory: Path) -> None:
        """Install a package of this machine's release on the system itself, where other programs look for it."""
        environment = self._apt([f"{package}/{self.release}"], directory)
        command = ("apt-get", "--quiet=2", "--yes", "--no-install-recommends", "install", package)
        run(*command, environment={**environment, "DEBIAN_FRONTEND": "noninteractive"})

    def unpack(self, packages: Sequence[str], directory: Path) -> Path:
        """Unpack packages, given as NAME/RELEASE, and return their root; packages of earlier runs are kept."""
        root = directory / "root"
        if root.exists():
            return root
        shutil.rmtree(directory, ignore_errors=True)
        downloads = directory / "downloads"
        partial = directory / "partial"
        for folder in (downloads, partial):
            folder.mkdir(parents=True)
        environment = self._apt(packages, directory)
        run("apt-get", "--quiet=2", "download", *packages, environment=environment, directory=downloads)
        for archive in downloads.iterdir():
            run("dpkg-deb", "--extract", str(archive), str(partial))
        partial.rename(root)
        return root

    def _apt(self, packages: Sequence[str], directory: Path) -> dict[str, str]:
        """Return the environment of an apt-get with separate package lists, for the packages' releases."""
        for folder in ("lists/partial", "cache/archives/partial"):
            (directory / folder).mkdir(parents=True, exist_ok=True)
        releases = sorted({package.partition("/")[2] for package in packages})
        sources = directory / "sources.list"
        sources.write_text("".join(f"deb [signed-by={KEYRING}] {self.mirror} {name} main\n" for name in releases))
        configuration = directory / "apt.conf"
        configuration.write_text(
            f'Dir::State::lists "{directory}/lists";\n'
            f'Dir::Cache "{directory}/cache";\n'
            f'Dir::Etc::SourceList "{sources}";\n'
            'Dir::Etc::SourceParts "/dev/null";\n'
            'APT::Sandbox::User "root";\n'
            'Acquire::Languages "none";\n'
        )
        environment = {**os.environ, "APT_CONFIG": str(configuration)}
        run("apt-get", "--quiet=2", "update", environment=environment)
        return environment


def this_debian() -> Debian:
    """Return the Debian that this machine runs.

    Raises:
        Missing: it runs another system, or this process is not root.

    """
    if os.geteuid() != 0:
        raise Missing("root, for Debian's packages")
    system = platform.freedesktop_os_release()
    suite = system.get("VERSION_CODENAME", "")
    if system["ID"] != "debian" or not suite or not KEYRING.exists():
        raise Missing("Debian's packages, on a machine that does not run a release of Debian")
    listed = run("apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)", "Created-By: Packages")
    mirrors = [site for site, _, name in (line.partition(" ") for line in listed.splitlines()) if name == suite]
    if not mirrors:
        raise Missing(f"a mirror of Debian {suite} in this machine's apt sources")
    return Debian(mirrors[0], suite)


def run(*command: str, environment: dict[str, str] | None = None, directory: Path | None = None) -> str:
    """Run a command and return what it prints on standard output.

    Raises:
        Missing: it fails; the message contains its standard error.

    """
    done = subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(f"{' '.join(command[:3])} has failed: {done.stderr.strip()}")
    return done.stdout
