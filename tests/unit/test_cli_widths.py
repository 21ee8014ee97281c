"""The text of commands on narrow terminals: no line is longer than the terminal, and no word or number is broken."""

import io
import re
import time
from collections.abc import Callable, Iterator

import click
import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from switchml.commands.advise import Advised
from switchml.commands.doctor import Diagnosis
from switchml.commands.job import JobFound, JobProfile, Jobs, JobStanding
from switchml.commands.rendering import TextRenderer
from switchml.commands.result import Result
from switchml.commands.root import Deferred, cli
from switchml.commands.switch import AgentFound, AgentList, PortList, SwitchEntries, SwitchList
from switchml.commands.text.printing import console
from switchml.commands.text.tables import table
from switchml.commands.top import Activity
from switchml.commands.versions import Versions
from switchml.common.counter_table import PATH, PROCESS, RANK, THREAD
from switchml.controller.proto import switchml_pb2 as pb
from switchml.ops.advice import Advice, Choice
from switchml.ops.doctor import Check
from switchml.ops.profiles import JobTimes, RankTimes
from switchml.ops.stragglers import straggler
from switchml.ops.switch_ports import PortActivity
from switchml.ops.top import AgentActivity, JobActivity, RankActivity, Snapshot, SwitchActivity
from switchml.ops.versions import Version

BILLIONS = 12_345_678_901
HOST = "gpu-node-17.cluster"


def job() -> pb.Job:
    """Return a job of 64 ranks below two leaves, which has run for days."""
    made = pb.Job(name="resnet50-imagenet-a1b2c3d4", id=1234, key=5678, workers=64, epoch=23, values_per_packet=256)
    made.state, made.priority, made.created = pb.JOB_STATE_RUNNING, 3, time.time() - 3 * 86400
    made.failure = f"rank 17 was lost: agent {HOST} on {HOST} says: process 123456 ended without closing it"
    for name, above in (("spine", ""), ("leaf1", "spine"), ("leaf2", "spine")):
        made.switches.add(switch=name, upstream=above, slot_base=16384, slots=2048)
    for number in range(64):
        counters = pb.RankCounters(sent=BILLIONS, received=BILLIONS, retransmissions=1234567, round_trip_seconds=0.0123)
        leaf = f"leaf{1 + number % 2}"
        rank = made.ranks.add(rank=number, agent=f"{HOST}-{number}", host=HOST, switch=leaf, counters=counters)
        rank.position, rank.state, rank.exit_code = BILLIONS - number, pb.RANK_STATE_ATTACHED, 137
    return made


def switch(name: str) -> pb.Switch:
    return pb.Switch(
        name=name, target="soft", control_address="unix:/run/user/1000/switchml/p4runtime-12.sock", connected=True,
        primary=True, data_address="10.20.130.140", data_udp_port=48864, values_per_packet=2048, slots=32768,
        slots_free=16384, largest_free_range=16384, drained=True, jobs=12,
    )  # fmt: skip


def detail() -> pb.SwitchDetail:
    found = pb.SwitchDetail(switch=switch("spine"), verdicts={"contributions": BILLIONS}, drop_reasons={"stale": 7})
    for number in range(4):
        match = {"ingress_port": str(number), "source_mac": "02:00:00:00:00:01", "source": "10.20.130.140"}
        match |= {"udp_port": "48864", "secret": "0x12345678", "job": "1234", "worker": "63", "slot": "0x4000&&&0xf800"}
        parameters = {"bit": "0x8000000000000000", "mask": "0xffffffffffffffff", "epoch": "23", "group": "1234"}
        found.entries.add(table="worker_table", match=match, action="admit", parameters=parameters, packets=BILLIONS)
        found.losses.add(port=number, ingress=0.0123, egress=0.0123)
    group = found.groups.add(id=1234)
    for number in range(0, 126, 2):
        group.replicas.add(port=509, instance=number)
    return found


def agent(number: int) -> pb.Agent:
    registration = pb.Register(
        name=f"{HOST}-{number}", host=HOST, address="10.20.130.140", socket=f"/run/switchml/agent-{HOST}.sock",
        switch="leaf1", switch_port=number, max_ranks=64, version="0.2.0.dev123+g1234567",
    )  # fmt: skip
    return pb.Agent(
        registration=registration, live=True, ranks_in_use=32, tenant="vision", last_heartbeat=time.time() - 3 * 86400
    )


def profile() -> JobTimes:
    counted = {counter.name: BILLIONS for counter in (*THREAD, *PROCESS, *PATH) if not counter.is_histogram}
    packets = {counter.name: BILLIONS for counter in RANK}
    ranks = tuple(RankTimes(number, f"{HOST}-{number}", counted | {"calls": 12345}, packets, ()) for number in range(8))
    return JobTimes(1234, "resnet50-imagenet-a1b2c3d4", 23, None, ranks, ())


def snapshot() -> Snapshot:
    rates = {counter.name: 1234567.8 for counter in RANK}
    ranks = tuple(
        RankActivity(
            number, "ATTACHED", f"{HOST}-{number}", "leaf1", HOST, BILLIONS, number, 1e6, 1.2e10, rates, 0.0123
        )
        for number in range(64)
    )
    name, switches = "resnet50-imagenet-a1b2c3d4", ("spine", "leaf1", "leaf2")
    activity = JobActivity(1234, 5, name, "RUNNING", "", "", 64, switches, 3 * 86400.0, 1.2e10, 0.0123, 63, ranks)
    switch = SwitchActivity("spine", "", True, 32768, 16384, "")
    return Snapshot(time.time(), (activity,), (switch,), (AgentActivity(HOST, HOST, "spine", True),) * 64)


def advice() -> Advice:
    choices = (
        Choice("gloo", 2.0, 1.0, "float32 sums in the order of a ring", measured=2.1),
        Choice("switchml", 1.0, 2.0, "float32 sums to 2^-28 of the largest magnitude in a packet", measured=1.05),
        Choice("overlap of FSDP's collectives", 0.9, 2.2, "the same bits", ("overlap(model)",), needs_code=True),
        Choice("16 bits", 0.85, 2.4, "rounded", variables={"SWITCHML_TORCH_WIRE": "blocks:bits=16"}, needs_code=True),
        Choice("16 bits, and no change", 0.88, 2.3, "rounded", variables={"SWITCHML_TORCH_WIRE": "blocks:bits=16"}),
    )
    return Advice(4, 200_000_000, 2.0, 1.0, 0.5, 2.0, 6, 25 << 20, 5 << 20, choices)


SNAPSHOT = snapshot()
CHECK = Check("net.core.rmem_max", "warning", "212992 bytes are few", "`sysctl -w net.core.rmem_max=1`")
RESULTS: dict[str, Callable[[], Result]] = {
    "job list": lambda: Jobs([job()] * 3, True),
    "job show": lambda: JobFound(job()),
    "job status": lambda: JobStanding(job(), straggler(job())),
    "job profile": lambda: JobProfile(profile()),
    "advise": lambda: Advised(("python", "train.py"), advice()),
    "switch list": lambda: SwitchList([switch("spine"), switch("leaf1")]),
    "switch show": lambda: SwitchEntries(detail()),
    "switch ports": lambda: PortList([PortActivity(1, (f"{HOST}-1",), 64, BILLIONS, 1234567.0, 1234567.0, 0.01, 0.01)]),
    "agent list": lambda: AgentList([agent(number) for number in range(4)]),
    "agent show": lambda: AgentFound(agent(1), [job()]),
    "top": lambda: Activity(iter([SNAPSHOT])),
    "version": lambda: Versions([Version("agent", HOST, "0.2.0.dev123+g1234567", False)]),
    "doctor": lambda: Diagnosis([CHECK], True),
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(result: Result, width: int, monkeypatch: pytest.MonkeyPatch, wide: bool = False) -> list[str]:
    for name, value in (("COLUMNS", str(width)), ("LINES", "200"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    terminal = Terminal()
    TextRenderer(terminal, wide=wide).show(result)
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue()).splitlines()]


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("command", RESULTS)
def test_lines_fit_and_no_word_is_broken(command: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(RESULTS[command](), width, monkeypatch)
    assert max(map(cell_len, lines)) <= width, "\n".join(lines)
    whole = words(shown(RESULTS[command](), width, monkeypatch, wide=True))
    assert words(lines) - whole <= {"left", "out:", "(-o", "wide", "shows", "all)"}, "\n".join(lines)


def words(lines: list[str]) -> set[str]:
    """Return the words of a text without rules and commas."""
    return {word.strip(",─━") for line in lines for word in line.split()} - {""}


def test_columns_that_are_left_out_are_named_and_wide_has_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow, wide = (shown(JobFound(job()), 80, monkeypatch, wide=wide) for wide in (False, True))
    assert any(line.startswith("left out: ") and "host" in line for line in narrow)
    assert not any("left out" in line for line in wide)
    assert any(all(name in line for name in ("rank", "host", "chunks", "round trip", "exit")) for line in wide)


def test_empty_columns_go_first_and_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    made = table("name", "empty", "number", drop=("number",))
    made.add_row("n" * 20, "", "1" * 12)
    terminal = Terminal()
    console(terminal).print(made)
    assert "1" * 12 in terminal.getvalue()
    assert "empty" not in terminal.getvalue()


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    loaded = command.load() if isinstance(command, Deferred) else command
    yield path
    if isinstance(loaded, click.Group):
        for name, child in loaded.commands.items():
            yield from commands(child, (*path, name))


@pytest.mark.parametrize("path", list(commands(cli)), ids=" ".join)
@pytest.mark.parametrize("width", [80, 100])
def test_help_fits(path: tuple[str, ...], width: int) -> None:
    lines = CliRunner().invoke(cli, [*path, "--help"], terminal_width=width).output.splitlines()
    assert max(map(len, lines)) <= width, "\n".join(lines)


def test_advice_has_measured_times_beside_predicted_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(shown(Advised(("python", "train.py"), advice()), 200, monkeypatch))
    for words in ("2000 ms  1.00", "2100 ms  1.00", "1000 ms  2.00", "1050 ms  2.00", "900 ms  2.20", "41% of a step"):
        assert words.replace("  ", " ") in " ".join(text.replace("│", " ").split())
    assert "docs/guides/compression.md" in text
    assert text.count("export SWITCHML_TORCH_WIRE=blocks:bits=16") == 1
    predicted = advice().with_measured({})
    assert "measured" not in "\n".join(shown(Advised(("python", "train.py"), predicted), 200, monkeypatch))
