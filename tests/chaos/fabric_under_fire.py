"""A fabric with one job, and the faults that can be caused in its processes, links and files while the job runs."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from switchml.common.clock import TEST_VARIABLE
from switchml.common.processes import StartingProcess
from switchml.controller.client import ControllerClient
from switchml.controller.errors import ControllerError, StoreError
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.constants import PROTOCOL_HEADER_BYTES, PROTOCOL_UDP_PORT
from switchml.launch.fabric import stop
from switchml.launch.fabric_state import PORT_KEEPER, Fabric, inspect
from switchml.launch.run_directory import RunDirectory
from switchml.topologies.namespaces import SWITCHES, Namespaces, switch_interface
from tests.chaos import with_held_ports
from tests.chaos.outcome import Outcome, outcome_of
from tests.support.fabric_harness import Ctl, runs, wait_until

END_SECONDS: Final = 120.0
"""The time within which a job must have ended, with or without an error."""
CLEAN_SECONDS: Final = 15.0
"""The time after the end of its processes during which a job may hold resources: its controller may be down."""
STEPS: Final = 150
MIB: Final = 2**20
PAGE: Final = 4096
FILLER: Final = "filler"
UDP_HEADER_BYTES: Final = 8
SMALLEST_PACKET: Final = 64
"""The values per packet of the fabric with the smallest packets."""
UP_SECONDS: Final = 300.0
READY_SECONDS: Final = 60.0
"""The time in which a process that is started again must be ready."""
WHOLE_SECONDS: Final = 120.0
"""The time in which all agents and switches must be connected after that."""
CALL_SECONDS: Final = 15
"""The timeout of each collective."""


class Words:
    """The messages that the ranks of a job have printed so far; a thread reads them."""

    def __init__(self, job: subprocess.Popen[str]) -> None:
        self.lines: list[str] = []
        self.said: list[tuple[int, dict[str, Any]]] = []  # worker number and message
        self.last_step = -1
        self._more = threading.Condition()
        self._thread = threading.Thread(target=self._read, args=(job,), daemon=True)
        self._thread.start()
        self._output = threading.Thread(target=job.stdout.read if job.stdout else print, daemon=True)
        self._output.start()

    def _read(self, job: subprocess.Popen[str]) -> None:
        assert job.stderr is not None
        for line in job.stderr:
            with self._more:
                self.lines.append(line.rstrip("\n"))
                if line.startswith("[") and "] {" in line:
                    worker, words = line[1:].split("] ", 1)
                    self.said.append((int(worker), json.loads(words)))
                    self.last_step = max(self.last_step, self.said[-1][1].get("step", -1))
                self._more.notify_all()
        with self._more:
            self._more.notify_all()

    def reached(self, step: int) -> bool:
        """Return whether a rank has completed this step."""
        return self.last_step >= step

    def wait_for_step(self, step: int, job: subprocess.Popen[str], seconds: float) -> None:
        """Return as soon as a rank has completed this step."""
        with self._more:
            self._more.wait_for(lambda: self.reached(step) or not self._thread.is_alive(), seconds)
        assert self.reached(step), f"no rank reached step {step}: {self.lines[-5:]}, exit status {job.poll()}"

    def close(self) -> None:
        self._thread.join(5)
        self._output.join(5)


@dataclasses.dataclass
class Shape:
    """The parameters of a run, all chosen at random from its seed."""

    kind: str  # shm, udp, soft or bmv2: the last two in network namespaces
    policy: str
    workers: int
    agents: int
    step: int  # the step at which the fault strikes
    size: int
    racks: int = 0  # 0: one switch without racks
    aggregators: int = 0  # that share the job's slots; 0: none
    program: str = "survives"  # of the ranks, in tests/support/workers

    @property
    def in_namespaces(self) -> bool:
        return self.kind in ("soft", "bmv2")

    def options(self) -> list[str]:
        """Return the options of `up` for this fabric."""
        racks = ["--racks", str(self.racks)] if self.racks else []
        if self.in_namespaces:
            return ["--switch", self.kind, "--workers", str(self.agents), *racks]
        return ["--transport", self.kind, "--agents", str(self.agents), *racks]

    def __str__(self) -> str:
        where = f"{self.kind}, {self.racks} racks" if self.racks else self.kind
        where += f", {self.aggregators} aggregators" if self.aggregators else ""
        return f"{where}, {self.workers} ranks on {self.agents} agents, --on-failure {self.policy}, step {self.step}"


class FabricUnderFire:
    """A fabric, its job and the fault; `hit` is the time at which it struck, on the machine's monotonic clock."""

    def __init__(self, directory: Path, shape: Shape, chance: random.Random) -> None:
        self.directory = directory
        self.ctl = Ctl(directory / "run")
        self.clock = directory / "clock"  # the offset of the clocks of controller and agents
        self.ctl.environment[TEST_VARIABLE] = str(self.clock)
        self.shape = shape
        self.chance = chance
        self.hit = 0.0
        self.pids: set[int] = set()  # all that have ever belonged to the fabric
        self.controller_command: list[str] = []  # of a controller that may have ended
        self.notes: list[str] = []  # remarks of the fault
        self.namespaces = Namespaces(self.ctl.run_dir)

    # ---- the job ----

    def up(self, *more: str) -> None:
        self.ctl.run("up", *self.shape.options(), *more, timeout=UP_SECONDS)
        self.pids |= {process["pid"] for process in self.ctl.processes()}

    def down(self) -> None:
        stop(RunDirectory(self.ctl.run_dir))

    def start_job(self) -> None:
        """Start the job and return when it has reached the step of the fault, or at once if that is the first."""
        self.job, self.words = self.begin_job(self.shape.workers, self.shape.policy, STEPS)
        if self.shape.step:
            self.words.wait_for_step(self.shape.step, self.job, END_SECONDS)

    def begin_job(
        self,
        workers: int,
        policy: str,
        steps: int,
        *more: str,
        pause: float = 0.02,
        call_seconds: float = CALL_SECONDS,
        until: Path | None = None,
    ) -> tuple[subprocess.Popen[str], Words]:
        """Start a job that checks its sums, with more options of `job start`; it ends once the file `until` exists."""
        worker = self.ctl.worker(self.shape.program, "--size", str(self.shape.size), "--steps", str(steps))
        worker += ["--pause", str(pause), "--timeout", str(call_seconds), "--say-steps"]
        worker += ["--until", str(until)] if until else []
        start = ["job", "start", "--workers", str(workers), "--on-failure", policy, *more]
        job = self.ctl.start(*start, *worker)
        return job, Words(job)

    def wait_end(self) -> None:
        """Raise subprocess.TimeoutExpired if the job hangs."""
        self.job.wait(END_SECONDS)
        self.words.close()

    def struck(self) -> None:
        self.hit = time.monotonic()

    def outcome(self, names: Sequence[str]) -> Outcome:
        """Return the outcome of the ended job; `names` are the errors of the fault."""
        return outcome_of(self.words, self.hit, names)

    # ---- processes ----

    def process(self, name: str) -> dict[str, Any]:
        """Return a process of the fabric: by its name, the first `switch`, or any `agent`."""
        found = {process["name"]: process for process in self.ctl.processes()}
        if name == "switch":
            return found[self.fabric().switches[0]["name"]]
        if name == "agent":
            return found[self.chance.choice([agent["name"] for agent in self.fabric().agents])]
        return found[name]

    @contextlib.contextmanager
    def client(self) -> Iterator[ControllerClient]:
        with ControllerClient(self.fabric().controller) as client:
            yield client

    def wait_whole(self) -> None:
        """Wait until all switches and agents are there again."""

        def whole() -> bool:
            with self.client() as client:
                agents = {agent.name for agent in client.list_agents() if agent.live}
                connected = all(switch.connected for switch in client.list_switches())
            return connected and agents == {agent["name"] for agent in self.fabric().agents}

        wait_until(whole, "all switches and agents are there", WHOLE_SECONDS)

    def fabric(self) -> Fabric:
        """Return the content of fabric.json."""
        fabric = Fabric.read(RunDirectory(self.ctl.run_dir))
        assert fabric is not None
        return fabric

    def worker_pid(self) -> int:
        children = Path(f"/proc/{self.job.pid}/task/{self.job.pid}/children").read_text().split()
        return int(self.chance.choice(sorted(children, key=int)))

    def kill(self, pid: int) -> None:
        self.struck()
        os.kill(pid, signal.SIGKILL)

    def stop(self, pid: int) -> None:
        """Stop a process for less than the time after which it is declared dead."""
        self.struck()
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self.chance.uniform(0.1, 2.0))
        os.kill(pid, signal.SIGCONT)

    def kill_and_restart(self, name: str, meanwhile: Any = None) -> None:
        """Kill a process, call a function, and restart the process at the same addresses, like a service manager."""
        process = self.process(name)
        command = self._command(process)
        if name == "controller":
            self.controller_command = command
        self.kill(process["pid"])
        wait_until(lambda: not runs(process["pid"]), f"{name} has ended", 10)
        if meanwhile is not None:
            meanwhile()
        time.sleep(self.chance.uniform(0, 1.0))
        self.begin_again(process["name"], command)

    def begin_again(self, name: str, command: list[str]) -> None:
        """Start a process again, and record it in fabric.json."""
        has_ready_file = "simple_switch_grpc" not in " ".join(command)
        ready_file = self.ctl.run_dir / f"{name}.ready" if has_ready_file else None
        log = self.ctl.run_dir / "logs" / f"{name}.log"
        if "--udp-port" in command:
            keeper = self.process(PORT_KEEPER)["pid"]
            command = [sys.executable, with_held_ports.__file__, str(keeper), *command]
        child = StartingProcess(name, command, log, ready_file, self.ctl.environment)
        self.pids.add(child.record.pid)
        fabric = self.fabric()
        processes = tuple(child.record if old.name == name else old for old in fabric.processes)
        dataclasses.replace(fabric, processes=processes).save()
        if has_ready_file:
            child.wait_ready(time.monotonic() + READY_SECONDS)

    def _command(self, process: dict[str, Any]) -> list[str]:
        """Return the command that started the process, with the addresses that it got."""
        command = Path(f"/proc/{process['pid']}/cmdline").read_bytes().decode().split("\0")[:-1]
        ready_file = self.ctl.run_dir / f"{process['name']}.ready"
        if "--ready-file" in command:
            at = command.index("--ready-file")
            del command[at : at + 2]
            ready = json.loads(ready_file.read_text())
            if process["name"] == "controller":
                command += ["--listen", ready["address"]]
            elif "--grpc" in command:
                command[command.index("--grpc") + 1] = ready["grpc"]
                if "--udp-port" in command:
                    port = ready["ports"]["1"]
                    command[command.index("--udp-port") + 1] = f"1={port['address']}:{port['udp_port']}"
        if self.shape.in_namespaces:
            agents = [agent["name"] for agent in self.fabric().agents]
            command = self.namespaces.command(process["name"] if process["name"] in agents else SWITCHES, command)
        return command

    # ---- links ----

    def cut_links(self, seconds: float) -> None:
        """Take links down, in a namespace, or let the switch drop all packets of a port; later restore them."""
        if self.shape.in_namespaces:
            topology = self.fabric().topology
            assert topology is not None
            host = self.chance.choice(topology["hosts"])
            interface = switch_interface(host["switch"], host["port"])
            self.struck()
            self.set_link(interface, "down")
            time.sleep(seconds)
            self.set_link(interface, "up")
            return
        self.lose(1.0)
        time.sleep(seconds)
        self.lose(0.0)

    def set_link(self, interface: str, state: str) -> None:
        """Take an interface of a switch up or down."""
        command = ["ip", "-n", self.namespaces.name(SWITCHES), "link", "set", interface, state]
        subprocess.run(command, check=True, timeout=30)

    def drop_sent(self, interface: str, drop: bool) -> None:
        """Let an interface of a switch drop all packets that are sent through it, or end that."""
        change = ["replace", "dev", interface, "root", "tbf", "rate", "8bit", "burst", "1", "limit", "1"]
        command = ["tc", "-n", self.namespaces.name(SWITCHES), "qdisc"]
        subprocess.run([*command, *(change if drop else ["del", "dev", interface, "root"])], check=True, timeout=30)

    def lose(self, share: float) -> None:
        """Let the switch drop this fraction of the packets that its ports receive, and of those that they send."""
        with self.client() as client:
            client.set_loss("", [], share, share)
        if share:
            self.struck()

    def flip_bits(self) -> None:
        """Change one bit of 1 % of the packets that hosts send and receive; each host has its own bit.

        The checksums do not detect it: the kernel computes those of sent packets afterwards, and RESULTs have none.
        """
        self.struck()
        for host in self._hosts():
            first_bit = 8 * (UDP_HEADER_BYTES + PROTOCOL_HEADER_BYTES) + 32 * self.chance.randrange(SMALLEST_PACKET)
            value = f"@th,{first_bit},32"
            flip = f"numgen random mod 100 == 0 {value} set {value} ^ {1 << self.chance.randrange(32)}"
            chains = [
                f"chain {hook} {{ type filter hook {hook} priority 0; udp {end} {PROTOCOL_UDP_PORT} {flip}; }};"
                for hook, end in (("output", "dport"), ("input", "sport"))
            ]
            self._nft(host, f"table inet flips {{ {' '.join(chains)} }}")

    def flip_no_bits(self) -> None:
        """End it."""
        for host in self._hosts():
            self._nft(host, "delete table inet flips")

    def _hosts(self) -> list[str]:
        return [str(host["name"]) for host in self.fabric().agents]

    def _nft(self, host: str, rules: str) -> None:
        command = ["ip", "netns", "exec", self.namespaces.name(host), "nft", rules]
        subprocess.run(command, check=True, timeout=30)

    # ---- files ----

    def store_files(self) -> list[Path]:
        """Return the paths of the controller's database and its write-ahead log."""
        return sorted(path for path in self.ctl.run_dir.glob("controller.sqlite*") if path.suffix != ".lock")

    def overwrite_store(self) -> None:
        """Overwrite parts of the database with random bytes, as a failing disk would."""
        for path in self.chance.sample(self.store_files(), self.chance.randint(1, len(self.store_files()))):
            size = path.stat().st_size
            with path.open("r+b") as file:
                for _ in range(self.chance.randint(1, 8)):
                    file.seek(self.chance.randrange(max(1, size)))
                    file.write(self.chance.randbytes(self.chance.choice([1, 16, 512, 4096])))

    def truncate_store(self) -> None:
        """Cut off the end of one of its files."""
        path = self.chance.choice(self.store_files())
        os.truncate(path, self.chance.randrange(max(1, path.stat().st_size)))

    def controller_works(self) -> bool:
        """Return whether the controller can still read and write its store."""
        damage = ""
        try:
            with self.client() as client:
                client.list_jobs(include_ended=True)
                client.drain_switch("", True)
                client.drain_switch("", False)
                client.stop_job(client.start_job(pb.StartJobRequest(workers=1)).id)
        except StoreError as error:
            damage = str(error)
        assert not damage or "is damaged" in damage, f"the error does not mention the damage: {damage}"
        return not damage

    def begin_without_store(self) -> None:
        """Move the controller's store away and start the controller without it."""
        process = self.process("controller")
        command = self.controller_command or self._command(process)
        if runs(process["pid"]):
            os.kill(process["pid"], signal.SIGKILL)
            wait_until(lambda: not runs(process["pid"]), "the controller has ended", 10)
        for path in self.store_files():
            path.rename(self.directory / f"damaged-{path.name}")
        self.begin_again("controller", command)
        agents = {agent["name"] for agent in self.fabric().agents}

        def registered() -> bool:
            return {a["registration"]["name"] for a in self.ctl.json("agent", "list")["agents"] if a["live"]} == agents

        wait_until(registered, "all agents are registered again", 20)

    def limit_files(self, pid: int, limit: int) -> None:
        """Limit the size of a process's files (-1: no limit), so that its writes fail as on a full disk."""
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    def fill_disk(self) -> None:
        """Fill the disk that holds the run directory."""
        with (self.directory / FILLER).open("wb", buffering=0) as file:
            for size in (MIB, PAGE):
                while _has_room(file, bytes(size)):
                    pass

    def empty_disk(self) -> None:
        """Make room on the disk again."""
        (self.directory / FILLER).unlink()

    # ---- afterwards ----

    def state(self) -> str:
        """Return the state of the fabric that `status` reports: running or broken."""
        return inspect(RunDirectory(self.ctl.run_dir)).state

    def leftovers(self) -> list[str]:
        """Return what the ended job has left in the switch and in running processes, after at most some seconds."""
        end = time.monotonic() + CLEAN_SECONDS
        while True:
            try:
                found = self._leftovers()
            except ControllerError as error:  # it may have been started just now
                found = [f"the controller does not answer: {error}"]
            if not found or time.monotonic() > end:
                return found
            time.sleep(0.2)

    def _leftovers(self) -> list[str]:
        found: list[str] = []
        with self.client() as client:
            live = client.list_jobs()
            for name in [switch.name for switch in client.list_switches()]:
                found += [f"{name}: {what}" for what in _left_in_switch(client.show_switch(name), live)]
        busy = {rank.agent for job in live for rank in job.ranks}
        for process in self.ctl.processes():
            if process["name"] in busy:
                continue
            memory = [name for name in _descriptors(process["pid"]) if name.startswith("/memfd:switchml")]
            found += [f"{process['name']} still has {len(memory)} pieces of shared memory"] if memory else []
        return found

    def remains(self) -> list[str]:
        """Return what `down` has failed to remove."""
        found = [f"process {pid} is left" for pid in sorted(self.pids) if runs(pid)]
        found += [f"process {pid} is left: {name}" for pid, name in _processes_of(self.ctl.run_dir)]
        found += [f"namespace {name} is left" for name in self.namespaces.existing()]
        allowed = {"logs", "jobs", "lock", "users", "controller.toml"}
        for path in self.ctl.run_dir.iterdir():
            if path.name not in allowed and not path.name.startswith("controller.sqlite"):
                found.append(f"{path.name} is left in the run directory")
        return found

    def close(self) -> None:
        """Stop all processes, also after a failure."""
        job = getattr(self, "job", None)
        if job is not None:
            job.kill()
            job.wait(10)
        for pid in self.pids:
            if runs(pid):
                os.kill(pid, signal.SIGCONT)
        self.down()
        for pid, _ in _processes_of(self.ctl.run_dir):
            os.kill(pid, signal.SIGKILL)


def _left_in_switch(detail: pb.SwitchDetail, live: list[pb.Job]) -> list[str]:
    """Return what jobs that are not live have left in a switch."""
    here = {job.id: place for job in live for place in job.switches if place.switch == detail.switch.name}
    found = []
    left = detail.switch.slots - detail.switch.slots_free - sum(place.slots for place in here.values())
    if left:
        found.append(f"{left} slots are left")
    entries = [entry for entry in detail.entries if entry.table != "switch_address_table"]
    tables = [entry.table for entry in entries if entry.match.get("job") not in {str(job) for job in here}]
    found += [f"{len(tables)} table entries are left: {sorted(set(tables))}"] if tables else []
    found += ["multicast groups are left"] if detail.groups and not here else []
    return found


def _has_room(file: BinaryIO, data: bytes) -> bool:
    """Append to a file; return False if its disk is full."""
    try:
        return file.write(data) == len(data)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False


def _descriptors(pid: int) -> list[str]:
    names: list[str] = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed in between
            names.append(str(link.readlink()))
    return names


def _processes_of(run_dir: Path) -> list[tuple[int, str]]:
    """Return the processes with this run directory in their environment, including those not in fabric.json."""
    found, sign = [], f"SWITCHML_RUN_DIR={run_dir}".encode()
    for directory in Path("/proc").iterdir():
        if not directory.name.isdecimal() or int(directory.name) == os.getpid():
            continue
        try:
            if sign in (directory / "environ").read_bytes().split(b"\0"):
                found.append((int(directory.name), (directory / "comm").read_text().strip()))
        except OSError:  # it has ended, or belongs to another user
            continue
    return found


if sys.platform != "linux":
    raise SystemExit("the chaos tests need Linux: /proc, namespaces, prlimit")
