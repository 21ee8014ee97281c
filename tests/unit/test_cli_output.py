"""The output of switchml-ctl as text, which contains strings from others, and as JSON."""

import io
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from switchml.commands.events import Events, FollowedEvents
from switchml.commands.job import JobFound, JobLogs, JobReady, Jobs, JobWatch
from switchml.commands.rendering import JsonRenderer, TextRenderer
from switchml.commands.result import Rendered, Result
from switchml.commands.switch import AgentList
from switchml.commands.text.printing import Frame, print_text, text
from switchml.controller.proto import events_pb2
from switchml.controller.proto import switchml_pb2 as pb
from switchml.launch.job_start import JobStarted, attach_environment

SOCKET = "/run/my agents/$(touch evil)'\";a.sock"


def test_the_lines_to_copy_mean_to_a_shell_what_they_say() -> None:
    job = pb.Job(name="digits", id=7, workers=1, state=pb.JOB_STATE_READY)
    rank = job.ranks.add(rank=0, host="host-1", agent_socket=SOCKET)
    shown = TextRenderer().rendered(JobReady(JobStarted(job, Path("/run/7"), "127.0.0.1:1")))
    [line] = [line for line in shown.splitlines() if line.startswith("  host-1:  ")]
    command = line.removeprefix("  host-1:  ") + " env -0"
    found = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, timeout=30).stdout
    variables = dict(text.split("=", 1) for text in found.split("\0") if text)
    assert attach_environment(job, rank).items() <= variables.items()


def test_brackets_and_colons_are_no_markup() -> None:
    registration = pb.Register(name="a1", host="[/red] [link=https://example.org]h[/link] :bug:", max_ranks=64)
    assert registration.host in TextRenderer().rendered(AgentList([pb.Agent(registration=registration, live=True)]))


def every_kind(kind: type[object]) -> Iterable[type[object]]:
    for each in kind.__subclasses__():
        yield from (each, *every_kind(each))


def test_every_result_has_a_text() -> None:
    print_text(Jobs([]), io.StringIO())  # which imports the modules that register texts
    without = [kind.__name__ for kind in every_kind(Result) if text.dispatch(kind) is text.dispatch(object)]
    assert without == ["Feed"]  # its kinds of results have texts


def states() -> Iterable[pb.Job]:
    for state, position in ((pb.JOB_STATE_RUNNING, 5), (pb.JOB_STATE_FAILED, 9)):
        job = pb.Job(name="digits", id=7, workers=1, state=state)
        job.ranks.add(rank=0, position=position, exit_code=3)
        yield job


def test_a_job_that_is_watched_is_a_line_for_each_state_and_in_json_its_end() -> None:
    watch = JobWatch(iter(states()))
    lines = TextRenderer().rendered(watch).splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["digits: RUNNING, 5 chunks", "digits: FAILED, 9 chunks"]
    assert watch.exit_status == 3
    watch = JobWatch(iter(states()))
    assert json.loads(JsonRenderer().rendered(watch))["state"] == "FAILED"
    assert watch.exit_status == 3


def test_a_job_over_aggregators_is_shown_with_their_names() -> None:
    job = pb.Job(name="digits", id=7, workers=2, epoch=2, values_per_packet=64, state=pb.JOB_STATE_RUNNING)
    for name in ("s1", "s2"):
        job.switches.add(switch=name, slot_base=64, slots=32, epoch=2)
    for number in range(2):
        job.ranks.add(rank=number, agent=f"a{number}", switch="s0", position=5 * number)
    shown = TextRenderer().rendered(JobFound(job))
    assert "2 workers on the aggregators s1, s2, slots 64-95, 64 values a packet, epoch 2" in shown
    assert "aggregators together: " in shown
    assert "s0" not in shown
    assert "rank 0 is 5 behind" in TextRenderer().rendered(JobWatch(iter([job])))
    assert "s1, s2" in TextRenderer().rendered(Jobs([job]))


def test_a_job_on_a_tree_is_shown_with_its_switches() -> None:
    job = pb.Job(name="digits", id=7, workers=3, epoch=2, values_per_packet=64, state=pb.JOB_STATE_RUNNING)
    for name, upstream in (("core", ""), ("s1", "core"), ("l1", "s1"), ("l2", "s1"), ("s2", "core")):
        job.switches.add(switch=name, upstream=upstream, slot_base=64, slots=32, epoch=2)
    for number, switch in enumerate(("l1", "s2", "l1")):
        job.ranks.add(rank=number, agent=f"a{number}", switch=switch)
    shown = TextRenderer().rendered(JobFound(job))
    assert "3 workers on a tree of 5 switches, slots 64-95, 64 values a packet, epoch 2" in shown
    drawn = ["core", "├─ s1", "│  ├─ l1: ranks 0, 2", "│  └─ l2", "└─ s2: ranks 1"]
    assert "\n".join(drawn) in shown
    assert "a1 at s2" in shown
    assert "switch core: " in shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_frames_take_each_others_place_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    print_text(JobWatch(iter(states())), terminal)
    shown = terminal.getvalue()
    assert "RUNNING" in shown
    assert "\x1b[1A" in shown.split("RUNNING")[1].split("FAILED")[0]  # the cursor goes up
    assert "chunks\n" not in shown, "the line is for those without a terminal"


def test_a_frame_without_a_line_is_only_for_terminals() -> None:
    @text.register(Terminal)
    def _(_result: Terminal) -> Iterable[Frame]:
        yield Frame("looking ...")
        yield Frame("in place", "line")

    file = io.StringIO()
    print_text(Terminal(), file)
    assert file.getvalue() == "line\n"


def test_events_are_one_object_and_those_that_are_followed_one_on_each_line() -> None:
    events = [events_pb2.Event(kind="a"), events_pb2.Event(kind="b")]
    whole = json.loads(JsonRenderer().rendered(Events(iter(events))))
    assert [event["kind"] for event in whole["events"]] == ["a", "b"]
    lines = JsonRenderer().rendered(FollowedEvents(iter(events))).splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["a", "b"]
    assert TextRenderer().rendered(Events(iter(()))) == "no events\n"


def test_logs_are_written_as_they_are_with_the_rank_before_each_line() -> None:
    paths = {0: Path("/logs/rank-0.log"), 1: Path("/logs/rank-1.log")}
    pieces = [(0, "a\tb\n"), (1, "[red]c\n"), (0, "d")]
    shown = TextRenderer().rendered(JobLogs("digits", paths, iter(pieces), prefixed=True))
    assert shown == "[0] a\tb\n[1] [red]c\n[0] d\n"
    assert TextRenderer().rendered(JobLogs("digits", paths, iter(pieces[:1]), prefixed=False)) == "a\tb\n"
    found = json.loads(JsonRenderer().rendered(JobLogs("digits", paths, iter(pieces), prefixed=True)))
    assert [log["lines"] for log in found["logs"]] == [["a\tb", "d"], ["[red]c"]]


@pytest.mark.parametrize("kind", [TextRenderer, JsonRenderer])
def test_what_another_process_has_shown_is_passed_on(
    kind: type[TextRenderer], capsys: pytest.CaptureFixture[str]
) -> None:
    kind().show(Rendered("said\n", 0))
    assert capsys.readouterr().out == "said\n"
