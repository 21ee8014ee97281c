"""Build the Debian package for this distribution and its Python: ``python -m tools.debian [--wheel FILE]``.

The package has an environment at the path that the units in systemd/ name, with all Python packages that they need.
"""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

from switchml.common.installation import DEBIAN_INSTALLER
from switchml.common.version import VERSION

ROOT: Final = Path(__file__).resolve().parents[2]
SCRIPTS: Final = Path(__file__).parent / "scripts"
BUILD: Final = ROOT / "build" / "deb"
ENVIRONMENT: Final = Path("/opt/switchml/venv")
PYTHON: Final = "/usr/bin/python3"
PROGRAMS: Final = ("switchml-ctl", "switchml-controller", "switchml-agent", "switchml-switch")
COMPLETIONS: Final = {
    "bash": "usr/share/bash-completion/completions/switchml-ctl",
    "fish": "usr/share/fish/vendor_completions.d/switchml-ctl.fish",
    "zsh": "usr/share/zsh/vendor-completions/_switchml-ctl",
}

_CONTROL: Final = """\
Package: switchml
Version: {version}
Architecture: {architecture}
Maintainer: The SwitchML authors
Section: net
Priority: optional
Installed-Size: {size}
Depends: {python}, libc6 (>= 2.28), systemd | systemd-standalone-sysusers
Description: All-reduce inside the network
 The programs of SwitchML: controller, soft switch, agent and command line, with
 their units for systemd, and the library for programs in C. Training processes
 in Python install the wheel of the same version into their own environment.
"""


def main() -> None:
    """Build what the arguments ask for."""
    parser = argparse.ArgumentParser(description="Build the Debian package for this distribution and its Python.")
    parser.add_argument("--wheel", type=Path, help="the wheel to package; default: compile this checkout")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="the folder for it; default: dist")
    arguments = parser.parse_args()
    missing = [program for program in ("dpkg-deb", PYTHON) if shutil.which(program) is None]
    if missing:
        sys.exit(f"debian: {' and '.join(missing)} is missing; this needs Debian or Ubuntu with python3")
    sys.stdout.write(f"{build(arguments.wheel, arguments.output.resolve())}\n")


def build(wheel: Path | None, output: Path) -> Path:
    """Build the package into a folder; return its path."""
    shutil.rmtree(BUILD, ignore_errors=True)
    tree = BUILD / "tree"
    tree.mkdir(parents=True)
    output.mkdir(parents=True, exist_ok=True)
    _install(wheel or _compile(), tree)
    _add_units(tree)
    _add_library(tree)
    _add_programs(tree)
    _add_documentation(tree)
    architecture = _ask("dpkg", "--print-architecture")
    version = package_version(VERSION, _distribution())
    control = tree / "DEBIAN"
    shutil.copytree(SCRIPTS, control)
    for script in control.iterdir():
        script.chmod(0o755 if script.name != "triggers" else 0o644)
    size = sum(path.lstat().st_size for path in tree.rglob("*")) // 1024
    fields = {"version": version, "architecture": architecture, "size": size, "python": f"python{_python_version()}"}
    (control / "control").write_text(_CONTROL.format(**fields), encoding="ascii")
    path = output / f"switchml_{version}_{architecture}.deb"
    _run("dpkg-deb", "--root-owner-group", "--build", str(tree), str(path))
    return path


def package_version(version: str, distribution: str) -> str:
    """Return the package's version, such as "0.2.0~rc1-1~debian12" for 0.2.0rc1.

    dpkg sorts "~" before the end of a text. Without it a candidate would be newer than its release.
    """
    return re.sub("(?=a|b|rc)", "~", version) + f"-1~{distribution}"


def _compile() -> Path:
    """Compile the wheel without the transports whose libraries have other names on each distribution."""
    place = BUILD / "wheel"
    settings = {"cmake.define.SWITCHML_DEVICES": "OFF", "build-dir": str(BUILD / "cmake")}
    options = (f"--config-setting={name}={value}" for name, value in settings.items())
    _run(_uv(), "build", "--wheel", "--python", PYTHON, *options, "--out-dir", str(place), str(ROOT))
    [path] = place.glob("*.whl")
    return path


def _install(wheel: Path, tree: Path) -> None:
    """Install a wheel and what it needs into an environment that works at its final path."""
    place = tree / ENVIRONMENT.relative_to("/")
    _run(_uv(), "venv", "--quiet", "--relocatable", "--no-project", "--python", PYTHON, str(place))
    _run(_uv(), "pip", "install", "--quiet", "--link-mode=copy", "--python", str(place / "bin" / "python"), str(wheel))
    # With its minor version: after an upgrade of the distribution, python3 would not find the packages.
    (place / "bin" / "python").unlink()
    (place / "bin" / "python").symlink_to(f"/usr/bin/python{_python_version()}")
    [information] = place.glob("lib/python3*/site-packages/switchml-*.dist-info")
    (information / "INSTALLER").write_text(f"{DEBIAN_INSTALLER}\n", encoding="ascii")
    (information / "direct_url.json").unlink(missing_ok=True)
    for left in (".lock", ".gitignore", "CACHEDIR.TAG"):
        (place / left).unlink(missing_ok=True)
    _run(str(place / "bin" / "python"), "-m", "compileall", "-q", "-s", str(tree), "-p", "/", str(place / "lib"))


def _add_units(tree: Path) -> None:
    """Add the units, the user, the kernel's settings and the folder of the configuration."""
    units = tree / "usr/lib/systemd/system"
    units.mkdir(parents=True)
    for unit in (ROOT / "systemd").glob("*.service"):
        shutil.copy(unit, units)
    for source, name in (("sysusers.conf", "sysusers.d/switchml.conf"), ("sysctl.conf", "sysctl.d/60-switchml.conf")):
        target = tree / "usr/lib" / name
        target.parent.mkdir()
        text = (ROOT / "systemd" / source).read_text(encoding="ascii")
        target.write_text(re.sub(r"\A# Copy to \S+\. ", "# ", text), encoding="ascii")
    examples = tree / "usr/share/doc/switchml/examples"
    shutil.copytree(ROOT / "systemd" / "switchml-switch.service.d", examples / "switchml-switch.service.d")
    (tree / "etc/switchml").mkdir(parents=True)


def _add_library(tree: Path) -> None:
    """Let compilers, pkg-config and NCCL find libswitchml and the plugin where they look without options."""
    [package] = (tree / ENVIRONMENT.relative_to("/")).glob("lib/python3*/site-packages/switchml")
    final = Path("/") / package.relative_to(tree)
    folder = tree / "usr/lib" / _ask(PYTHON, "-c", "import sysconfig; print(sysconfig.get_config_var('MULTIARCH'))")
    (folder / "pkgconfig").mkdir(parents=True)
    for name in ("libswitchml.so.0", "libnccl-net-switchml.so"):
        (folder / name).symlink_to(final / "lib" / name)
    (folder / "libswitchml.so").symlink_to("libswitchml.so.0")
    (tree / "usr/include").mkdir()
    (tree / "usr/include/switchml.h").symlink_to(final / "include/switchml.h")
    text = (package / "lib/pkgconfig/switchml.pc").read_text(encoding="ascii")
    text = re.sub(r"(?m)^(prefix|Cflags|Libs):?=?.*\n", "", text)
    (folder / "pkgconfig/switchml.pc").write_text(f"{text.strip()}\nLibs: -lswitchml\n", encoding="ascii")


def _add_programs(tree: Path) -> None:
    """Add links to the programs, and what shells need to complete their arguments."""
    (tree / "usr/bin").mkdir()
    for name in PROGRAMS:
        (tree / "usr/bin" / name).symlink_to(ENVIRONMENT / "bin" / name)
    for shell, path in COMPLETIONS.items():
        (tree / path).parent.mkdir(parents=True)
        script = _ask(str(tree / ENVIRONMENT.relative_to("/") / "bin/switchml-ctl"), "completion", shell)
        (tree / path).write_text(f"{script}\n", encoding="utf-8")


def _add_documentation(tree: Path) -> None:
    place = tree / "usr/share/doc/switchml"
    shutil.copy(ROOT / "LICENSE", place / "copyright")
    (place / "changelog.gz").write_bytes(gzip.compress((ROOT / "CHANGELOG.md").read_bytes(), mtime=0))


def _distribution() -> str:
    """Return the name of this distribution for a version, such as "debian12" or "ubuntu24.04"."""
    release = platform.freedesktop_os_release()
    return release["ID"] + release.get("VERSION_ID", "")


def _python_version() -> str:
    return _ask(PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")


def _uv() -> str:
    return str(Path(sysconfig.get_path("scripts")) / "uv")


def _ask(*command: str) -> str:
    """Return what a program prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _run(*command: str) -> None:
    """Run a program; exit with its output if it fails."""
    variables = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    done = subprocess.run(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"debian: {' '.join(command)} has failed with status {done.returncode}:\n{done.stdout[-8000:]}")


if __name__ == "__main__":
    main()
