"""What switchml-ctl prints of texts that others have chosen."""

import subprocess

import pytest

from switchml.commands import output
from switchml.controller.proto import switchml_pb2 as pb
from switchml.launch.jobs import attach_environment

SOCKET = "/run/my agents/$(touch evil)'\";a.sock"


def test_the_lines_to_copy_mean_to_a_shell_what_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    job = pb.Job(name="digits", id=7, workers=1, state=pb.JOB_STATE_READY)
    rank = job.ranks.add(rank=0, host="host-1", agent_socket=SOCKET)
    output.show_attach(job)
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  host-1:  ")]
    command = line.removeprefix("  host-1:  ") + " env -0"
    found = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, timeout=30).stdout
    variables = dict(text.split("=", 1) for text in found.split("\0") if text)
    assert attach_environment(job, rank).items() <= variables.items()


def test_brackets_and_colons_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    registration = pb.Register(name="a1", host="[/red] [link=https://example.org]h[/link] :bug:", max_ranks=64)
    output.show_agents([pb.Agent(registration=registration, live=True)])
    assert registration.host in capsys.readouterr().out
