"""Run every block of code in every page word for word, unless a comment above it says why not (doc_blocks.py)."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from switchml.controller.config import load_config
from switchml.dataplane.devices import built
from tests.fabric.doc_blocks import PLAIN, ROOT, Block, all_blocks, blocks_of
from tests.support.fabric_harness import SCRIPTS, Ctl, wait_until

BLOCKS = all_blocks()
SECONDS = 200  # of a block

NEEDS: dict[str, Callable[[], bool]] = {
    "root": lambda: os.geteuid() == 0 and shutil.which("ip") is not None,
    "bmv2": lambda: shutil.which("simple_switch_grpc") is not None,
    "torch": lambda: importlib.util.find_spec("torch") is not None,
    "optuna": lambda: importlib.util.find_spec("optuna") is not None,
    "dpdk": lambda: built("dpdk"),
    "xdp": lambda: built("xdp"),
}

# The programs that pages leave to their readers.
TRAIN = """
import numpy as np, switchml
with switchml.connect() as comm:
    comm.all_reduce(np.ones(1000, np.float32))
"""
TORCH_TRAIN = """
import torch, torch.distributed as dist
dist.init_process_group("switchml")
tensor = torch.ones(1000)
dist.all_reduce(tensor)
assert (tensor == dist.get_world_size()).all()
dist.destroy_process_group()
"""
BUSY = """
import numpy as np, switchml
with switchml.connect() as comm:
    while True:
        comm.all_reduce(np.ones(100_000, np.float32))
"""
RANK = """
import numpy as np, switchml
comm, step, steps = switchml.connect(), 0, 3
def train_one_step(comm):
    comm.all_reduce(np.ones(1000, np.float32))
def broadcast_state(comm, root):
    return step
"""
TORCH_RANK = """
import torch, torch.distributed as dist, switchml.torch
dist.init_process_group("switchml")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
"""

# Daemons run in the background once they are ready; commands "until Ctrl-C" get SIGINT; sudo is for tests run by root.
PRELUDE = r"""
set -euo pipefail
daemon() {
  local ready; ready=$(mktemp -u "$SCRATCH/XXXXXX.ready")
  command "$@" --ready-file "$ready" >>"$SCRATCH/daemons.log" 2>&1 &
  echo $! >>"$SCRATCH/daemons"
  case " $* " in *" --standby "*) return ;; esac  # it is ready when it leads
  until test -e "$ready"; do kill -0 $!; sleep 0.05; done
}
switchml-switch() { daemon switchml-switch "$@"; }
switchml-controller() { daemon switchml-controller "$@"; }
switchml-agent() { daemon switchml-agent "$@"; }
sudo() { if [ "$1" = -E ]; then shift; fi; "$@"; }
interrupted() {  # once it has said something that is not an error
  local said status=0; said=$(mktemp "$SCRATCH/XXXXXX.said")
  set -m; "$@" >"$said" 2>&1 & set +m  # without job control it would not hear SIGINT
  until test -s "$said" || ! kill -0 $! 2>/dev/null; do sleep 0.05; done
  if ! grep -qE 'Usage|Error|Traceback' "$said"; then kill -INT $!; fi
  wait $! || status=$?
  cat "$said"
  test $status = 0 || test $status = 130
}
"""


@dataclass
class Reader:
    """A reader who runs the blocks of a page, in a directory with the examples, with a separate switchml-ctl."""

    ctl: Ctl
    directory: Path
    replacements: list[tuple[str, str]] = field(default_factory=list)
    preamble: str = ""  # for Python blocks, which the ranks of a job run
    prelude: str = PRELUDE  # for shell blocks
    shell_command: list[str] = field(default_factory=lambda: ["bash"])

    def run(self, block: Block) -> None:
        """Run a block, or write it to its file."""
        text = block.text
        for pattern, replacement in self.replacements:
            text = re.sub(pattern, replacement, text)
        if block.file:
            (self.directory / block.file).write_text(text)
            self._check_file(block)
        elif block.language == "python":
            (self.directory / "block.py").write_text(self.preamble + text)
            self.shell("switchml-ctl job start --workers 2 -- python block.py", block.place)
        else:
            assert block.language == "sh", f"{block.place}: {block.language} cannot be run"
            limit = 4 * SECONDS if "long" in block.needs else SECONDS
            self.shell(re.sub(r"(?m)^(.*?) +# .*until Ctrl-C.*$", r"interrupted \1", text), block.place, limit)

    def shell(self, script: str, place: str, seconds: int = SECONDS) -> None:
        """Run a script; every command must succeed."""
        done = subprocess.run(
            ["timeout", str(seconds), *self.shell_command, "-c", self.prelude + script],
            cwd=self.directory,
            env=self.ctl.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds + 30,
        )
        assert done.returncode == 0, f"{place}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{self._log()}"

    def _log(self) -> str:
        log = self.directory / "daemons.log"
        return log.read_text() if log.exists() else ""

    def _check_file(self, block: Block) -> None:
        if block.language == "yaml":
            self.ctl.run("topology", "show", str(self.directory / block.file))
        else:
            assert block.language == "toml", f"{block.place}: {block.language} files are not checked"
            whole = self.directory / "controller.toml"  # the block may be a part of this file
            part = self.directory / block.file
            part.write_text((whole.read_text() if whole.exists() and whole != part else "") + part.read_text())
            load_config(part)

    def close(self) -> None:
        """Stop the daemons that were started."""
        started = self.directory / "daemons"
        for pid in started.read_text().split()[::-1] if started.exists() else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGTERM)
            wait_until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), f"process {pid} has ended")  # type: ignore[misc]


# ---- the environments of blocks -------------------------------------------------------------------------------------


def _scratch(_: Reader) -> None:
    """Prepare only the examples."""


def _rank(reader: Reader) -> None:
    """Run Python blocks in the ranks of a job, after they have connected."""
    reader.preamble = RANK


def _torch(reader: Reader) -> None:
    (reader.directory / "train.py").write_text(TORCH_TRAIN)


def _torch_rank(reader: Reader) -> None:
    reader.preamble = TORCH_RANK


def _digits(reader: Reader) -> None:
    """Start a job named digits that makes all-reduces."""
    (reader.directory / "busy.py").write_text(BUSY)
    reader.shell("switchml-ctl job start --workers 2 --name digits --detach -- python busy.py", "digits")
    wait_until(lambda: reader.ctl.json("job", "show", "digits")["state"] == "RUNNING", "digits runs")


def _namespaces(reader: Reader) -> None:
    """Start switch s1 in network namespaces."""
    reader.ctl.run("up", "--switch", "soft", "--workers", "4")


def _launched(reader: Reader) -> None:
    """Start a fabric, and set the variables of a launcher of one rank."""
    reader.ctl.run("up")
    reader.ctl.environment |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


def _rack(reader: Reader) -> None:
    """Write the topology file of docs/operate/tofino.md."""
    [block] = [block for block in blocks_of("docs/operate/tofino.md") if block.language == "yaml"]
    (reader.directory / "rack.yaml").write_text(block.text)


def _hosts(reader: Reader) -> None:
    """Replace 10.0.0.0/8 by loopback, and /etc/switchml, /run/switchml and /var/lib/switchml by the directory."""
    first = 1 + os.getpid() % 200
    reader.replacements = [
        (r"\b10\.(\d+)\.(\d+)\.(\d+)\b", lambda found: f"127.{first + int(found[1])}.{found[2]}.{found[3]}"),  # type: ignore[list-item]
        (r"/(etc|run|var/lib)/switchml\b", rf"{reader.directory}/\1"),
        (r"/path/to/switchml\b", str(ROOT)),
    ]
    for name in ("etc", "run", "var/lib"):
        (reader.directory / name).mkdir(parents=True)
    del reader.ctl.environment["SWITCHML_RUN_DIR"]


def _secured(reader: Reader) -> None:
    """Write the certificates and the configuration of docs/operate/security.md to their places."""
    _hosts(reader)
    certificates = "switchml-ctl certs init certs --switch s1 --agent host-1 --agent host-2; cp -r certs/* etc/"
    reader.shell(certificates, "certificates")
    configuration = (
        '[controller]\nstore = "controller.sqlite"\ntls = "certs/controller"\n[[switches]]\nname = "s1"\n'
        'target = "soft"\np4runtime = "10.0.0.2:9559"\naddress = "10.0.0.2"\nudp_port = 48864\n'
    )
    for pattern, replacement in reader.replacements:
        configuration = re.sub(pattern, replacement, configuration)
    for name in ("controller.toml", "fabric.toml"):
        (reader.directory / name).write_text(configuration)


def _tofino(reader: Reader) -> None:
    """Start the emulator as bf_switchd."""
    _hosts(reader)
    # The addresses of the data plane in a topology cannot be those of loopback.
    pattern, replacement = reader.replacements[0]
    reader.replacements[0] = (f"(?<!ipv4: ){pattern}", replacement)
    script = "daemon python -m ptf_tests.tofino_emulator.daemon --grpc 10.1.0.1:50052"
    for pattern, replacement in reader.replacements:
        script = re.sub(pattern, replacement, script)
    reader.shell(script, "bf_switchd")


def _memif(reader: Reader) -> None:
    """Use loopback addresses and directories that no other test uses."""
    reader.replacements = [
        (r"\b127\.0\.0\.1\b", f"127.{1 + os.getpid() % 200}.0.1"),
        (r"/run/switchml\b", f"{reader.directory}/run"),
    ]


def _veth(reader: Reader) -> None:
    """Run the blocks in separate namespaces for mounts, networks and processes, which end with the block."""
    reader.replacements = [(r"/tmp/", f"{reader.directory}/")]
    reader.shell_command = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash"]
    reader.prelude = PRELUDE + "mkdir -p /run/netns; mount -t tmpfs none /run/netns; ip link set lo up\n"


SETTINGS: dict[str, Callable[[Reader], None]] = {
    "scratch": _scratch,
    "job": _scratch,
    "rank": _rank,
    "torch": _torch,
    "torch-rank": _torch_rank,
    "digits": _digits,
    "namespaces": _namespaces,
    "launched": _launched,
    "rack": _rack,
    "hosts": _hosts,
    "secured": _secured,
    "tofino": _tofino,
    "memif": _memif,
    "veth": _veth,
}


@pytest.fixture
def reader(ctl: Ctl) -> Iterator[Reader]:
    directory = ctl.run_dir.parent / "reader"
    directory.mkdir()
    shutil.copytree(ROOT / "examples", directory / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    (directory / "train.py").write_text(TRAIN)
    (directory / "home").mkdir()
    ctl.environment |= {"HOME": str(directory / "home"), "SCRATCH": str(directory), "OMP_NUM_THREADS": "1"}
    made = Reader(ctl, directory)
    try:
        yield made
    finally:
        made.close()
        ctl.environment["SWITCHML_RUN_DIR"] = str(ctl.run_dir)


# ---- the tests ------------------------------------------------------------------------------------------------------


def groups() -> list[list[Block]]:
    """Return the blocks of a page with the same setting, which the same reader runs one after the other."""
    run = [block for block in BLOCKS if block.kind == "run"]
    by = sorted(run, key=lambda block: (block.page, block.setting, block.line))
    return [list(blocks) for _, blocks in itertools.groupby(by, key=lambda block: (block.page, block.setting))]


@pytest.mark.timeout(6 * SECONDS)
@pytest.mark.parametrize("blocks", groups(), ids=lambda blocks: f"{blocks[0].page}-{blocks[0].setting}")
def test_blocks_do_what_their_page_says(blocks: list[Block], reader: Reader, pytestconfig: pytest.Config) -> None:
    needs = {need for block in blocks for need in block.needs}
    missing = {need for need in needs if not (pytestconfig.getoption("--long") if need == "long" else NEEDS[need]())}
    possible = [block for block in blocks if not missing.intersection(block.needs)]
    if not possible:
        pytest.skip(f"needs {', '.join(sorted(missing))}")
    SETTINGS[blocks[0].setting](reader)
    for block in possible:
        reader.run(block)


def test_every_block_says_what_runs_it() -> None:
    unmarked = [block.place for block in BLOCKS if block.language != PLAIN and not block.kind]
    assert not unmarked, f"no comment above {', '.join(unmarked)} says what runs it: see tests/fabric/doc_blocks.py"


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.kind == "run by"], ids=lambda block: block.place)
def test_what_is_said_to_run_a_block_does(block: Block) -> None:
    path, _, name = block.rest.partition("::")
    text = (ROOT / path).read_text(encoding="utf-8")
    if path in (".ci/run", "Makefile"):
        made = set(re.findall(r"make ([\w-]+)", block.text))
        assert made
        assert made <= set(re.findall(r"[\w-]+", text)), f"{block.place}: not all of {made} are in {path}"
        return
    assert f"def {name}(" in text, f"{block.place}: {path} has no test {name}"
    assert Path(block.page).name in text, f"{block.place}: {path} does not read the page"


def test_a_page_without_a_comment_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "<!-- run: scratch -->\n```sh\ntrue\n```\n\nProse.\n\n```sh\nfalse\n```\n\n<!-- not run:\n two lines -->\n\n"
    (tmp_path / "page.md").write_text(page + "1. Item:\n\n   ```sh\n   indented\n   ```\n\n```toml\na = 1\n```\n")
    monkeypatch.setattr("tests.fabric.doc_blocks.ROOT", tmp_path)
    found = [(block.line, block.kind, block.rest, block.text) for block in blocks_of("page.md")]
    assert found == [
        (2, "run", "scratch", "true\n"),
        (8, "", "", "false\n"),
        (17, "", "", "indented\n"),
        (21, "", "", "a = 1\n"),
    ]


def test_a_block_that_fails_is_found(reader: Reader) -> None:
    def block(text: str) -> Block:
        return Block("page.md", 1, "sh", text, "run", "scratch")

    reader.run(block("true\n"))
    with pytest.raises(AssertionError, match=r"page\.md:1"):
        reader.run(block("switchml-ctl job show nosuch\ntrue\n"))
    with pytest.raises(AssertionError, match="No such command"):
        reader.run(block("switchml-ctl nosuch   # until Ctrl-C\n"))


def test_the_json_of_a_job_has_the_keys_that_the_page_shows(ctl: Ctl) -> None:
    """Check the JSON in docs/reference/command-line.md."""
    [shown] = [block for block in blocks_of("docs/reference/command-line.md") if block.language == "json"]
    result = ctl.json("job", "start", "--workers", "2", *ctl.worker("sums"))
    expected = json.loads(shown.text)
    assert result.keys() == expected.keys()
    assert result["switch"].keys() == expected["switch"].keys()


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_newcomer_installs_and_trains(ctl: Ctl, tmp_path: Path) -> None:
    """Follow docs/start/first-sum.md from a fresh checkout: an environment, the installation, a job."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name, follow_symlinks=False)
    blocks = blocks_of("docs/start/first-sum.md")
    place = next(number for number, block in enumerate(blocks) if "newcomer" in block.rest)
    script = "set -euo pipefail\n" + blocks[place].text + blocks[place + 1].text
    path = os.environ["PATH"].replace(f"{SCRIPTS}:", "")
    environment = {**ctl.environment, "PATH": path, "OMP_NUM_THREADS": "1"}
    subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, check=True, timeout=1100)
    assert (tmp_path / ".venv" / "bin" / "switchml-ctl").exists()
    assert str(sys.prefix) not in path
