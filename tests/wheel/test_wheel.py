"""The files that `pip install` of SwitchML writes: built from the source distribution, with packages of the same names.

`pytest tests/wheel` compiles the native code and installs what the demo needs; with `--wheels dist` it takes what
`make wheels` has built, and with `--python PROGRAM` it is for another interpreter.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.tags import cpython_tags
from packaging.utils import parse_wheel_filename

pytestmark = pytest.mark.timeout(1800)

CHECKOUT = Path(__file__).parents[2]
BUILD = CHECKOUT / "build" / "wheel"
ENVIRONMENT = CHECKOUT / ".venv-wheel"

# The folders of the checkout that are packages of switchml, and cli.py: other distributions use these names too.
FOREIGN = sorted(link.name.removesuffix(".py") for link in (CHECKOUT / "switchml").iterdir() if link.is_symlink())
FOREIGN_CODE = "raise ImportError('this package is of another distribution')\n"

NATIVE = {
    "switchml/_native",
    "switchml/benchmarks/_probes",
    "switchml/dataplane/softswitch/_native",
    "switchml/host_agent/_engine",
}
OPTIONAL_NATIVE = {"switchml/dataplane/_dpdk", "switchml/dataplane/_rdma", "switchml/dataplane/_xdp"}

LIBRARY = {  # for programs in C, and what finds it; the page of `top --web`
    "switchml/include/switchml.h",
    "switchml/lib/cmake/switchml/switchmlConfig.cmake",
    "switchml/lib/cmake/switchml/switchmlConfigVersion.cmake",
    "switchml/ops/live_page/page.css",
    "switchml/ops/live_page/page.html",
    "switchml/ops/live_page/page.js",
    "switchml/lib/libnccl-net-switchml.so",
    "switchml/lib/libswitchml.so",
    "switchml/lib/libswitchml.so.0",
    "switchml/lib/pkgconfig/switchml.pc",
    "switchml/share/switchml_mpi.c",
}

WORKER = """
import numpy, switchml
with switchml.connect() as comm:
    values = numpy.full(1000, comm.rank + 1.0, numpy.float32)
    comm.all_reduce(values)
assert (values == 3).all(), values
"""


def pip(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    return subprocess.run(command, check=True, text=True, timeout=1500, **options)


@pytest.fixture(scope="module")
def python(request: pytest.FixtureRequest) -> str:
    """Return the program of the interpreter that SwitchML is installed for."""
    return request.config.getoption("--python", default=None) or sys.executable


@pytest.fixture(scope="module")
def environment(python: str) -> Path:
    """Create an environment with only pip."""
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    subprocess.run([python, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True, timeout=300)
    return ENVIRONMENT


@pytest.fixture(scope="module")
def source_distribution(environment: Path, request: pytest.FixtureRequest) -> Path:
    built: Path | None = request.config.getoption("--wheels", default=None)
    if built is not None:
        [path] = built.glob("*.tar.gz")
        return path
    program = f"from scikit_build_core.build import build_sdist; build_sdist({str(BUILD)!r})"
    subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, check=True, timeout=300, stdout=subprocess.DEVNULL)
    [path] = BUILD.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wheel(source_distribution: Path, python: str, request: pytest.FixtureRequest) -> Path:
    """Build the source distribution, and the wheel from it, outside of the checkout."""
    built: Path | None = request.config.getoption("--wheels", default=None)
    if built is not None:
        [path] = (path for path in built.glob("*.whl") if fits(path.name, python))
        return path
    place = BUILD / "from_sdist"
    options = ("--no-deps", f"--wheel-dir={place}")
    pip("wheel", *options, str(source_distribution))
    [path] = place.glob("*.whl")
    return path


def fits(wheel: str, python: str) -> bool:
    """Say whether an interpreter on this machine can import a wheel of this name."""
    program = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([python, "-c", program], check=True, text=True, timeout=60, stdout=subprocess.PIPE)
    tags = cpython_tags([int(part) for part in done.stdout.split()])
    return not parse_wheel_filename(wheel)[3].isdisjoint(tags)


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_links_of_the_source_distribution_are_links(source_distribution: Path) -> None:
    with tarfile.open(source_distribution) as archive:
        links = {Path(*Path(each.name).parts[1:]): each.linkname for each in archive if each.issym() or each.islnk()}
    expected = [each for each in (CHECKOUT / "switchml").iterdir() if each.is_symlink()]
    assert links == {link.relative_to(CHECKOUT): str(link.readlink()) for link in expected}


def test_an_index_would_take_both(source_distribution: Path, wheel: Path) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", str(source_distribution), str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wheel_has_one_name_at_its_top(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in contents(wheel)}
    assert tops == {"switchml", wheel.name.split("-cp")[0] + ".dist-info"}


def test_a_wheel_has_what_runs_and_nothing_that_only_the_checkout_needs(wheel: Path) -> None:
    assert contents(wheel) >= LIBRARY
    names = contents(wheel) - LIBRARY
    native = {name.split(".")[0] for name in names if name.endswith(".so")}
    assert NATIVE <= native <= NATIVE | OPTIONAL_NATIVE
    assert {"switchml/cli.py", "switchml/py.typed", "switchml/topologies/single-switch.yaml"} <= names
    for part in ("compiler", "tofino_emulator", "ptf_tests", "tests", "generate", "README", "/ddp_", ".cc", ".h"):
        assert not [name for name in names if name.startswith("switchml/") and part in name], part


def test_a_wheel_of_the_checkout_has_the_same_files(wheel: Path) -> None:
    place = BUILD / "from_checkout"
    pure = [f"--config-settings={setting}" for setting in ("wheel.cmake=false", "wheel.py-api=py3")]
    pip("wheel", "--no-deps", f"--wheel-dir={place}", *pure, str(CHECKOUT))
    [path] = place.glob("*.whl")

    def own(names: set[str]) -> set[str]:
        own_names = {name for name in names - LIBRARY if name.startswith("switchml/")}
        return {name for name in own_names if not name.endswith(".so")}

    assert own(contents(path)) == own(contents(wheel))


# ---- installed together with others ----------------------------------------------------------------------------------


def foreign_wheel(name: str) -> Path:
    """Build the wheel of a distribution whose only package has this name."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}/__init__.py": FOREIGN_CODE,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
    path = BUILD / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


@pytest.fixture(scope="module")
def site_packages(environment: Path, wheel: Path) -> Path:
    """Install the foreign packages, then SwitchML with what the demo needs; return the directory."""
    [place] = environment.glob("lib/python*/site-packages")
    pip("install", "--no-index", "--no-deps", *(str(foreign_wheel(name)) for name in FOREIGN))
    before = {each.name for each in place.iterdir()}
    pip("install", "--no-deps", str(wheel))
    assert {each.name for each in place.iterdir()} - before == {"switchml", wheel.name.split("-cp")[0] + ".dist-info"}
    pip("install", f"{wheel}[demo]")
    return place


@pytest.fixture
def place(site_packages: Path) -> Iterator[Path]:
    """Create a directory with a short path, because paths of Unix sockets must be short."""
    path = Path(tempfile.mkdtemp(prefix="swml-"))
    yield path
    run(path, "switchml-ctl", "down")
    shutil.rmtree(path)


def run(place: Path, *command: str) -> str:
    """Run a program of the environment, and return its standard output."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SWITCHML"))}
    variables |= {"PATH": f"{ENVIRONMENT}/bin:{variables['PATH']}", "SWITCHML_RUN_DIR": str(place / "run")}
    done = subprocess.run(command, cwd=place, env=variables, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_packages_of_others_are_what_they_were(site_packages: Path) -> None:
    assert set(FOREIGN) == {"cli", "controller", "dataplane", "host_agent", "topologies"}
    for name in FOREIGN:
        assert [file.name for file in (site_packages / name).iterdir() if file.suffix] == ["__init__.py"]
        assert (site_packages / name / "__init__.py").read_text() == FOREIGN_CODE


def test_a_job_runs_beside_packages_of_others(place: Path) -> None:
    run(place, "switchml-ctl", "up")
    run(place, "switchml-ctl", "job", "start", "--workers", "2", "--", "python", "-c", WORKER)
    assert "ended agent-0" in run(place, "switchml-ctl", "down")


def test_a_program_in_c_runs(place: Path) -> None:
    options = run(place, "python", "-m", "switchml.config", "--cflags", "--libs").split()
    run(place, "gcc", str(CHECKOUT / "examples" / "c" / "all_reduce.c"), "-o", "all_reduce", *options)
    run(place, "switchml-ctl", "job", "start", "--workers", "2", "--", "./all_reduce")


def test_the_demo_runs(place: Path) -> None:
    for example in (CHECKOUT / "examples").glob("*.py"):
        shutil.copy(example, place)
    run(place, "python", "demo.py", "--run-dir", str(place / "run"))


def test_a_benchmark_runs(place: Path) -> None:
    tables = run(place, "switchml-ctl", "bench", "allreduce", "--workers=2", "--sizes=64KiB", "--repetitions=1")
    assert "64 KiB" in tables


# ---- as a tool -------------------------------------------------------------------------------------------------------


def test_uv_installs_the_programs_as_a_tool(wheel: Path, python: str, tmp_path: Path) -> None:
    places = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    command = ["uv", "tool", "install", "--python", python, str(wheel)]
    uv = str(Path(sysconfig.get_path("scripts")) / "uv")
    subprocess.run(command, executable=uv, env=os.environ | places, check=True, timeout=600, cwd=tmp_path)
    programs = {path.name for path in (tmp_path / "bin").iterdir()}
    assert programs == {"switchml-ctl", "switchml-controller", "switchml-agent", "switchml-switch"}
    variables = os.environ | {"SWITCHML_RUN_DIR": str(tmp_path / "run"), "COLUMNS": "200"}
    command = [str(tmp_path / "bin" / "switchml-ctl"), "doctor", "--json"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    hints = [check["remedy"] for check in json.loads(done.stdout)["checks"] if check["name"] == "torch"]
    assert hints == ["""Only init_process_group("switchml") needs it: `uv tool install 'switchml[torch]'`."""]


def test_the_arithmetic_uses_the_vectors_of_this_cpu(place: Path) -> None:
    """A compiler whose library does not know the CPU would leave the portable code, which is several times as slow."""
    flags = set(Path("/proc/cpuinfo").read_text().split())
    program = "from switchml._native import kernels as k; print([i.name for i in k.Instructions if k.cpu_has(i)])"
    assert ("AVX2" in run(place, "python", "-c", program)) == ({"avx2", "fma", "f16c"} <= flags)
