"""A Slurm of two hosts on this machine, with the switch and the controller of SwitchML.

Everything runs in separate namespaces. The site has a network with only a loopback device, a process tree and a list of
users; each of the nodes n1 and n2 has a separate host name, /tmp and /run. All end with this process, or when it closes
a pipe, and with them all processes and files.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.fabric_harness import SCRIPTS, WORKERS, wait_until

ROOT = Path(__file__).parents[2]
SLURM = ROOT / "examples" / "slurm"
MEETS = (sys.executable, str(WORKERS / "meets.py"))
NODES = ("n1", "n2")
USERS = {"ada.l": 4001, "bob": 4002}
SECONDS = 300  # for anything here: only what hangs takes as long
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROGRAMS = ("slurmctld", "slurmd", "srun", "munged", "nsenter", "unshare", "setpriv", "ip")
SETTINGS = {"SWITCHML_CONTROLLER": "127.0.0.1:7600", "SWITCHML_SWITCH_ADDRESS": "127.0.0.1"}
_STAYS = ("/run/switchml-slurm",)
OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")

# cover DIRECTORY: hides it by an empty one, but not the folders below it that $NEEDED names.
_COVER = r"""
set -e
cover() {
  mount -t tmpfs -o "mode=$2" tmpfs "$1"
  for needed in $NEEDED; do
    if [[ $needed == "$1"/* ]]; then mkdir -p "$needed"; mount --bind "/mnt/needed$needed" "$needed"; fi
  done
}
"""

# /mnt stands for the file system that all hosts share. Names are not looked up if there are only loopback addresses.
_SITE = r"""
ip link set lo up
ip address add 192.0.2.1/32 dev lo
mount -t tmpfs -o mode=0755 tmpfs /mnt
mkdir /mnt/etc /mnt/log /mnt/munge /mnt/spool /mnt/state
for needed in $NEEDED; do mkdir -p "/mnt/needed$needed"; mount --bind "$needed" "/mnt/needed$needed"; done
for closed in $CLOSED; do cover "$closed" 0755; done
cp /etc/passwd /etc/group /mnt/etc
echo "127.0.0.1 localhost
192.0.2.1 login n1 n2" >/mnt/etc/hosts
for user; do
  name=${user%%=*} number=${user##*=}
  echo "$name:x:$number:$number::/mnt/home/$name:/bin/bash" >>/mnt/etc/passwd
  echo "$name:x:$number:" >>/mnt/etc/group
  mkdir -p -m 0755 "/mnt/home/$name"
  chown "$number:$number" "/mnt/home/$name"
done
printf '%s: files\n' passwd group hosts >/mnt/etc/nsswitch.conf  # there is no name server to wait for
for file in passwd group hosts nsswitch.conf; do mount --bind "/mnt/etc/$file" "/etc/$file"; done
cover /run 0755
mkdir /run/munge
mount --bind /mnt/munge /run/munge
mount -t tmpfs -o mode=0755 tmpfs /etc/slurm
hostname login
echo ready
read -r _ || true   # as process 1 of the namespace, this shell also reaps processes
"""

_NODE = r"""
hostname "$1"
cover /tmp 1777
cover /run 0755
mkdir /run/munge
mount --bind /mnt/munge /run/munge
exec slurmd -D -N "$1"
"""

_CONFIGURATION = """
ClusterName=switchml
SlurmctldHost=login
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmctldPidFile=/mnt/state/slurmctld.pid
SlurmdPidFile=/mnt/state/slurmd-%n.pid
SlurmdSpoolDir=/mnt/spool/%n
StateSaveLocation=/mnt/state
SlurmctldLogFile=/mnt/log/slurmctld
SlurmdLogFile=/mnt/log/slurmd-%n
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
MessageTimeout=60
SlurmdTimeout=600
Licenses=switchml_slots:1024
NodeName=n[1-2] Port=[17001-17002] CPUs=64 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""

_SITE_SCRIPTS = """
Prolog=/mnt/site/prolog.sh
Epilog=/mnt/site/epilog.sh
TaskProlog=/mnt/site/task-prolog.sh
PrologFlags=Alloc
"""

_CONTROLLER = """
[controller]
listen = "127.0.0.1:7600"
store = "/mnt/controller.sqlite"

[[switches]]
name = "s1"
target = "soft"
p4runtime = "127.0.0.1:9559"
address = "127.0.0.1"
udp_port = 48864
"""


def why_no_slurm() -> str:
    """Return the reason why this machine cannot run the cluster, or an empty text."""
    if os.geteuid() != 0:
        return "needs root, for namespaces and users"
    missing = [program for program in PROGRAMS if shutil.which(program, path=_PATH) is None]
    if missing:
        return f"needs Slurm: apt-get install slurm-wlm munge iproute2 (not found: {', '.join(missing)})"
    if subprocess.run(["unshare", "--mount", "--uts", "--pid", "--net", "--fork", "true"]).returncode:
        return "cannot make namespaces"
    return ""


@dataclass(frozen=True)
class Job:
    """A job as `scontrol show job` describes it."""

    fields: Mapping[str, str]

    @property
    def state(self) -> str:
        return self.fields["JobState"]

    @property
    def reason(self) -> str:
        return self.fields["Reason"]

    @property
    def exit_status(self) -> int:
        """The exit status of the batch script."""
        return int(self.fields["ExitCode"].partition(":")[0])

    @property
    def restarts(self) -> int:
        return int(self.fields["Restarts"])


def _closed(path: Path) -> list[str]:
    """Return the first directory above `path` that other users cannot enter, if there is one."""
    return [str(above) for above in reversed(path.parents) if not above.stat().st_mode & stat.S_IXOTH][:1]


class Cluster:
    """The running site. Files and processes inside are reached as root."""

    def __init__(self) -> None:
        users = [f"{name}={number}" for name, number in USERS.items()]
        needed = {str(path.resolve()) for path in (ROOT, Path(sys.prefix), Path(sys.base_prefix))}
        closed = {above for path in needed for above in _closed(Path(path))}
        self._environment = {"PATH": _PATH, "LANG": "C.UTF-8"}
        self._environment |= {"NEEDED": " ".join(needed), "CLOSED": " ".join(closed)}
        command = ["unshare", "--mount", "--uts", "--pid", "--net", "--fork", "--kill-child", "--mount-proc"]
        self._site = subprocess.Popen(
            [*command, "bash", "-c", _COVER + _SITE, "site", *users],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._daemons: list[subprocess.Popen[bytes]] = []
        assert self._site.stdout is not None
        assert self._site.stdout.readline() == "ready\n", "the site's namespaces could not be made"
        self._files = Path("/proc", str(self._site.pid), "root")  # how the site sees the file system
        self.shared = self._files / "mnt"
        self._configuration = self._files / "etc/slurm/slurm.conf"
        self._configuration.write_text(_CONFIGURATION)

    def start(self) -> None:
        """Start everything, and wait until the nodes are idle."""
        self._start_munge()
        self.start_fabric()
        self._daemon("slurmctld", ["slurmctld", "-D"])
        for node in NODES:
            self._daemon(f"node-{node}", ["unshare", "--mount", "--uts", "bash", "-c", _COVER + _NODE, "node", node])
        self.wait_idle()

    def cancel_all(self) -> None:
        """Cancel all jobs, and wait until they have left the nodes."""
        for user in USERS:
            self.run(["scancel", "--quiet", f"--user={user}"])
        self.wait_idle()

    def wait_idle(self) -> None:
        """Wait until no job is on any node."""
        idle = ["sinfo", "--noheader", "--format=%T %D"]
        wait_until(lambda: self.run(idle, check=False).stdout == "idle 2\n", "idle nodes", SECONDS)

    def stop(self) -> None:
        """End all processes, which removes their files."""
        assert self._site.stdin is not None
        self._site.stdin.close()
        self._site.wait(SECONDS)
        for daemon in self._daemons:
            daemon.wait(SECONDS)

    def _start_munge(self) -> None:
        self.run(["bash", "-c", "head -c 1024 /dev/urandom >/mnt/munge.key"])
        self.run(["chmod", "0400", "/mnt/munge.key"])
        files = ["--key-file=/mnt/munge.key", "--log-file=/mnt/log/munged", "--seed-file=/mnt/state/munged.seed"]
        self._daemon("munge", ["munged", "--foreground", "--force", "--pid-file=/mnt/state/munged.pid", *files])
        self._wait_file("munge", "run/munge/munge.socket.2")

    def start_fabric(self) -> None:
        """Start the switch and the controller."""
        (self.shared / "controller.toml").write_text(_CONTROLLER)
        switch = [str(SCRIPTS / "switchml-switch"), "--grpc", "127.0.0.1:9559", "--udp-port", "1=127.0.0.1:48864"]
        self._daemon("switch", [*switch, "--ready-file", "/mnt/switch.ready"])
        self._wait_file("switch", "mnt/switch.ready")
        self.start_controller()

    def start_controller(self) -> None:
        controller = [str(SCRIPTS / "switchml-controller"), "--config", "/mnt/controller.toml"]
        self._controller = self._daemon("controller", [*controller, "--ready-file", "/mnt/controller.ready"])
        self._wait_file("controller", "mnt/controller.ready")

    def stop_controller(self) -> None:
        self.run(["bash", "-c", "kill $(sed 's/.*\"pid\": \\([0-9]*\\).*/\\1/' /mnt/controller.ready)"])
        self._controller.wait(SECONDS)
        self._daemons.remove(self._controller)

    def _wait_file(self, daemon: str, path: str) -> None:
        log = self.shared / "log" / f"{daemon}.output"
        file = self._files / path
        wait_until(lambda: file.exists() or self._daemons[-1].poll() is not None, f"{daemon}", SECONDS)
        assert file.exists(), log.read_text()

    def _enter(self, user: str, node: str | None = None) -> list[str]:
        """Return the command before one that a user runs on a host: by default the one where users log in."""
        at = f"/proc/{self._site.pid}/ns"
        command = ["nsenter", f"--mount={at}/mnt", f"--net={at}/net", f"--uts={at}/uts", f"--pid={at}/pid_for_children"]
        if node is not None:
            command += ["nsenter", f"--target={self._node_process(node)}", "--mount", "--uts"]
        if user != "root":
            command += ["setpriv", f"--reuid={USERS[user]}", f"--regid={USERS[user]}", "--clear-groups", "--"]
        return command

    def _node_process(self, node: str) -> int:
        return int((self.shared / "state" / f"slurmd-{node}.pid").read_text())

    def _daemon(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self.shared / "log" / f"{name}.output").open("ab") as log:
            daemon = subprocess.Popen(
                [*self._enter("root"), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd="/",
            )
        self._daemons.append(daemon)
        return daemon

    def run(
        self,
        command: Sequence[str],
        user: str = "root",
        node: str | None = None,
        check: bool = True,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as a user on a node, or where users log in, in the user's home directory."""
        environment = {"PATH": f"{SCRIPTS}:{_PATH}", "LANG": "C.UTF-8", "USER": user, **(variables or {})}
        home = "/" if user == "root" else f"/mnt/home/{user}"
        done = subprocess.run(
            [*self._enter(user, node), "env", f"--chdir={home}", *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**environment, "HOME": home},
            timeout=SECONDS,
            check=False,
        )
        assert not check or done.returncode == 0, (
            f"{shlex.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done

    def install_site_scripts(self, path: str = f"{SCRIPTS}:{_PATH}") -> None:
        """Use examples/slurm/site, with switchml-agent in `path`."""
        site = self.shared / "site"
        shutil.copytree(SLURM / "site", site, dirs_exist_ok=True)
        settings = {**SETTINGS, "PATH": path}
        (site / "agent.env").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._configure(_CONFIGURATION + _SITE_SCRIPTS)

    def remove_site_scripts(self) -> None:
        self._configure(_CONFIGURATION)

    def _configure(self, text: str) -> None:
        self._configuration.write_text(text)
        self.run(["scontrol", "reconfigure"])

    def submit(self, *arguments: str, user: str = "ada.l", **variables: str) -> int:
        """Submit a batch job in the directory with the files of examples/slurm; return its number."""
        directory = self.directory(user)
        if not directory.exists():
            shutil.copytree(SLURM, directory)
            self.run(["chown", "--recursive", user, f"/mnt/home/{user}/slurm"])
        command = ["env", "--chdir=slurm", "sbatch", "--parsable", *arguments]
        return int(self.run(command, user, variables={**SETTINGS, **variables}).stdout.split(";")[0])

    def directory(self, user: str = "ada.l") -> Path:
        return self.shared / "home" / user / "slurm"

    def output(self, number: int) -> str:
        """Return what a batch job of ada.l has printed."""
        return (self.directory() / f"switchml-{number}.log").read_text()

    def job(self, number: int) -> Job:
        shown = self.run(["scontrol", "--oneliner", "show", "job", str(number)]).stdout
        return Job(dict(re.findall(r"(\S+?)=(\S*)", shown)))

    def ended(self, number: int) -> Job:
        """Wait until a job is over and has left its nodes."""
        wait_until(lambda: self.job(number).state in OVER, f"the end of job {number}", SECONDS)
        return self.job(number)

    def start_requeued(self, number: int) -> None:
        """Check that a requeued job has left nothing, and start it in two seconds instead of two minutes."""
        # Slurm sets the delay when the job has left its nodes, and would overwrite a start time that was set earlier.
        wait_until(lambda: self.job(number).reason == "BeginTime", f"job {number} waits for its time", SECONDS)
        self.wait_idle()
        assert not any(self.left().values())
        # A node counts in seconds when it compares the start with the end before it: a job that starts again in the
        # second in which it was requeued is refused ("already killed, do not launch"), and so fails.
        self.run(["scontrol", "update", f"JobId={number}", "StartTime=now+2"])

    def left(self) -> dict[str, list[str]]:
        """Return what is on each node that a job has left there: files, mounts and agents."""
        # Programs leave files of other names in /tmp, as PyTorch does, and other tests have network namespaces.
        files = "find /tmp /run -path '/tmp/switchml*' -o -path '/run/switchml*'"
        look = f"{files}; grep switchml /proc/mounts | grep -v ' /run/netns/'; pgrep -af '[s]witchml-agent'"
        found = {node: self.run(["sh", "-c", look], node=node, check=False).stdout.splitlines() for node in NODES}
        return {node: [line for line in lines if line not in _STAYS] for node, lines in found.items()}
