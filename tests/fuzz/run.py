"""Build and run the fuzz targets: `python -m tests.fuzz.run --seconds 600 --target switch --coverage`.

The native targets need clang with libFuzzer (Debian: clang-14 libclang-rt-14-dev, and llvm-14 for --coverage), those
in Python need atheris. Targets whose tool is missing are named and skipped. New inputs go to build/fuzz/TARGET/corpus,
failing inputs to build/fuzz/TARGET/failures; tests/fuzz/corpus has a few inputs to begin with.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
HERE: Final = ROOT / "tests" / "fuzz"
BUILD: Final = ROOT / "build" / "fuzz"
CMAKE: Final = str(Path(sys.executable).with_name("cmake"))  # `make` installs both here
NINJA: Final = str(Path(sys.executable).with_name("ninja"))
LIMIT_SECONDS: Final = 20  # for one input
LIMIT_MIB: Final = 4096


@dataclass(frozen=True)
class Native:
    """A target in C++ (CMakeLists.txt has its libraries), and the sources whose coverage is reported."""

    name: str
    covered: tuple[str, ...]


NATIVE: Final = (
    Native(
        "switch",
        ("packet_view.cc", "pipeline.cc", "slot_store.cc", "result_sender.cc", "forwarding.cc", "own_address.cc"),
    ),
    Native("shm", ("shm_connection.cc", "shm_connection.h", "shm_port.cc", "shared_slot_store.cc", "sum_queue.cc")),
    Native(
        "listener",
        ("shm_listener.cc", "switch_shm.cc", "shm_connection.cc", "shm_job.cc", "shm_port.cc", "shm_worker.cc"),
    ),
    Native(
        "rank",
        ("job_ranks.cc", "rank.cc", "rank_channel.cc", "round_trip.h", "window.h", "delay_bound.h", "send_window.h"),
    ),
    Native("json", ("json.cc",)),
)
PYTHON: Final = ("messages", "agent_socket", "controller", "p4runtime")


def compiler() -> str | None:
    """Return a clang++ that has libFuzzer, or None."""
    for name in ("clang++", *(f"clang++-{version}" for version in range(30, 12, -1))):
        found = shutil.which(name)
        if found is None:
            continue
        probe = subprocess.run(
            [found, "-fsanitize=fuzzer,address", "-x", "c++", "-", "-o", "/dev/null"],
            input="#include <cstddef>\n#include <cstdint>\n"
            'extern "C" int LLVMFuzzerTestOneInput(const uint8_t*, size_t) { return 0; }\n',
            capture_output=True,
            text=True,
            check=False,
        )
        if probe.returncode == 0:
            return found
    return None


def build(clang: str, target: Native, coverage: bool) -> Path:
    """Compile a native target and its libraries; return the program."""
    directory = BUILD / ("coverage" if coverage else "fuzzer")
    flags = "-fno-omit-frame-pointer" + (" -fprofile-instr-generate -fcoverage-mapping" if coverage else "")
    configure = [
        *(CMAKE, "-G", "Ninja", "-S", str(ROOT), "-B", str(directory), "--log-level=WARNING"),
        *(f"-DCMAKE_CXX_COMPILER={clang}", f"-DCMAKE_MAKE_PROGRAM={NINJA}", f"-DCMAKE_CXX_FLAGS={flags}"),
        *("-DCMAKE_BUILD_TYPE=Debug", "-DSWITCHML_MODULES=OFF", "-DSWITCHML_FUZZ=ON"),
        f"-DSWITCHML_SANITIZE={'' if coverage else 'address,undefined'}",
    ]
    compile_it = [CMAKE, "--build", str(directory), "--target", f"fuzz_{target.name}"]
    for command in (configure, compile_it):
        if subprocess.run(command, check=False).returncode != 0:
            raise SystemExit(f"the fuzz target {target.name} does not compile")
    return directory / "tests" / "fuzz" / f"fuzz_{target.name}"


def run(name: str, command: Sequence[str], seconds: int, seed: int) -> bool:
    """Fuzz for this many seconds and print the result; return whether no input failed. With `seed` 0, runs differ."""
    corpus, failures = BUILD / name / "corpus", BUILD / name / "failures"
    corpus.mkdir(parents=True, exist_ok=True)
    failures.mkdir(parents=True, exist_ok=True)
    seeds = HERE / "corpus" / name
    seeds.mkdir(parents=True, exist_ok=True)
    arguments = [
        f"-max_total_time={seconds}",
        f"-seed={seed}",
        f"-timeout={LIMIT_SECONDS}",
        f"-rss_limit_mb={LIMIT_MIB}",
        "-max_len=2048",
        "-len_control=0",  # a sum takes several packets, so short inputs cover little
        "-print_final_stats=1",
        f"-artifact_prefix={failures}/",
        str(corpus),
        str(seeds),
    ]
    environment = {
        **os.environ,
        "PYTHONHASHSEED": str(seed) if seed else "random",
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    }
    begin = time.monotonic()
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, errors="replace", check=False
    )
    took = time.monotonic() - begin
    statistics = dict(re.findall(r"^stat::(\w+):\s+(\d+)", done.stderr, re.MULTILINE))
    covered = re.findall(r"cov: (\d+) ft: (\d+)", done.stderr)
    edges = f", {covered[-1][0]} edges, {covered[-1][1]} features" if covered else ""
    print(f"{name}: {statistics.get('number_of_executed_units', 'no')} runs in {took:.0f} s{edges}", flush=True)
    if done.returncode != 0:
        print(
            done.stdout[-3000:], done.stderr[-6000:], sep="\n", file=sys.stderr
        )  # atheris prints tracebacks to standard output
        print(f"{name} FAILED; the failing input is in {failures}", file=sys.stderr)
    return done.returncode == 0


def report_coverage(clang: str, target: Native) -> None:
    """Print the coverage of the target's sources by all inputs together."""
    suffix = re.sub(r".*clang\+\+", "", clang)
    tools = [shutil.which(f"{name}{suffix}") or shutil.which(name) for name in ("llvm-profdata", "llvm-cov")]
    if None in tools:
        print(f"{target.name}: no coverage, because llvm-profdata and llvm-cov are not on PATH")
        return
    profdata, cov = (str(tool) for tool in tools)
    program = build(clang, target, coverage=True)
    raw, profile = BUILD / "coverage" / f"{target.name}.raw", BUILD / "coverage" / f"{target.name}.profile"
    subprocess.run(
        [str(program), "-runs=0", str(BUILD / target.name / "corpus"), str(HERE / "corpus" / target.name)],
        env={**os.environ, "LLVM_PROFILE_FILE": str(raw)},
        check=True,
        capture_output=True,
    )
    subprocess.run([profdata, "merge", "-sparse", str(raw), "-o", str(profile)], check=True)
    covered = [str(path) for path in sorted(ROOT.rglob("native/**/*")) if path.name in target.covered]
    report = subprocess.run(
        [cov, "report", str(program), f"-instr-profile={profile}", *covered], check=True, capture_output=True, text=True
    )
    print(f"coverage by {target.name}:")
    for line in report.stdout.splitlines():
        columns = line.split()
        if columns and (columns[0] == "TOTAL" or columns[0].endswith((".cc", ".h"))):
            print(f"  {columns[0]:50} lines {columns[9]:>8}  branches {columns[12]:>8}")


def main() -> None:
    """Run the targets, one after the other."""
    names = [target.name for target in NATIVE] + list(PYTHON)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=300, help="in all, shared among the targets (default: 300)")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs; 0: another one each time (default: 0)")
    parser.add_argument("--target", choices=names, action="append", help="only this target; may be repeated")
    parser.add_argument("--coverage", action="store_true", help="print the native targets' coverage afterwards")
    options = parser.parse_args()
    chosen = options.target or names
    each = max(1, options.seconds // len(chosen))  # without the time to compile
    well = True

    native = [target for target in NATIVE if target.name in chosen]
    clang = compiler() if native else None
    if native and clang is None:
        print(
            "skipped: no clang++ with libFuzzer; on Debian or Ubuntu: sudo apt-get install clang-14 libclang-rt-14-dev"
        )
    elif clang is not None:
        for target in native:
            well &= run(target.name, [str(build(clang, target, coverage=False))], each, options.seed)
        if options.coverage:
            for target in native:
                report_coverage(clang, target)

    python = [name for name in PYTHON if name in chosen]
    if python and importlib.util.find_spec("atheris") is None:
        print("skipped: the targets in Python need atheris, which this interpreter lacks (pip install atheris)")
        python = []
    for name in python:
        well &= run(name, [sys.executable, "-m", f"tests.fuzz.fuzz_{name}"], each, options.seed)
    raise SystemExit(0 if well else 1)


if __name__ == "__main__":
    main()
