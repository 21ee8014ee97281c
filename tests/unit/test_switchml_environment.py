"""The job, rank and agent of a process, from its arguments and environment."""

import json
import socket
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchml.client.environment import NewJob, RankTarget, find_new_job, find_target, launch_label, rendezvous_key
from switchml.client.errors import ConnectError
from switchml.client.run_directory import configured_run_directory
from switchml.launch import settings as config

FULL = {
    "SWITCHML_AGENT": "/run/a.sock",
    "SWITCHML_JOB": "train",
    "SWITCHML_RANK": "3",
    "SWITCHML_WORLD_SIZE": "8",
    "SWITCHML_RUN_DIR": "/run/fabric",
}
TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29400",
    "TORCHELASTIC_RUN_ID": "digits",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "SWITCHML_AGENT": "/run/a.sock",
}


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in FULL.items() if name not in names}


# ---- joining a job ----


def test_all_from_the_environment() -> None:
    assert find_target(FULL) == RankTarget(Path("/run/a.sock"), "train", 3, 8)


def test_the_world_size_is_optional() -> None:
    assert find_target(without("SWITCHML_WORLD_SIZE")).world_size is None


def test_arguments_come_first() -> None:
    assert find_target(FULL, "/b.sock", 7, 0, 2) == RankTarget(Path("/b.sock"), "7", 0, 2)
    assert find_target({}, Path("/b.sock"), "j", 0) == RankTarget(Path("/b.sock"), "j", 0, None)


def test_options_of_a_new_job() -> None:
    environ = {**FULL, "SWITCHML_AGGREGATORS": "s1, s2"}
    existing, new = find_target(FULL), find_target(FULL, create=True)
    assert find_new_job(environ, existing) is None
    assert find_new_job(FULL, new) == NewJob()
    assert find_new_job(environ, new) == NewJob(aggregators=("s1", "s2"))
    assert find_new_job(environ, new, aggregators=["a"]) == NewJob(aggregators=("a",))
    assert find_new_job({**FULL, "SWITCHML_SLOTS": "256"}, new, "shrink") == NewJob(256, "shrink")
    with pytest.raises(ConnectError, match="job train exists already, and its aggregators were chosen when it began"):
        find_new_job(environ, existing, aggregators=["a"])
    with pytest.raises(
        ConnectError, match=r"on_failure \(SWITCHML_ON_FAILURE\) is 'retry'; it is one of abort, shrink"
    ):
        find_new_job({**FULL, "SWITCHML_ON_FAILURE": "retry"}, new)
    with pytest.raises(TypeError, match="aggregators is 's1,s2'; it must be a sequence of names"):
        find_new_job(FULL, new, aggregators="s1,s2")
    for text in ("s1,,s2", "s1,s1", "s 1"):
        with pytest.raises(ConnectError, match=r"SWITCHML_AGGREGATORS.*name"):
            find_new_job({**FULL, "SWITCHML_AGGREGATORS": text}, new)


@pytest.mark.parametrize("missing", ["SWITCHML_JOB", "SWITCHML_RANK"])
def test_what_is_missing_is_named_with_the_way_to_get_it(missing: str) -> None:
    with pytest.raises(ConnectError, match=missing + ".*switchml-ctl job start"):
        find_target(without(missing))
    with pytest.raises(ConnectError, match=missing):
        find_target({**FULL, missing: ""})


@pytest.mark.parametrize("name", ["SWITCHML_RANK", "SWITCHML_WORLD_SIZE"])
@pytest.mark.parametrize("value", ["three", "-1", "1.0", "٣", "1" * 10])
def test_numbers_that_are_none(name: str, value: str) -> None:
    with pytest.raises(ConnectError, match=f"{name} is .* not a number"):
        find_target({**FULL, name: value})


# ---- a job that begins when all ranks have attached ----


def test_under_torchrun_the_job_is_created() -> None:
    target = find_target(TORCHRUN)
    assert target == RankTarget(Path("/run/a.sock"), rendezvous_key(TORCHRUN), 5, 8, create=True)


def test_a_job_that_was_started_comes_before_torchruns() -> None:
    target = find_target({**TORCHRUN, "SWITCHML_JOB": "train"})
    assert target == RankTarget(Path("/run/a.sock"), "train", 5, 8)
    assert find_target(TORCHRUN, job="other", create=False) == RankTarget(Path("/run/a.sock"), "other", 5, 8)


def test_a_key_can_be_given() -> None:
    made = RankTarget(Path("/b.sock"), "k", 0, 2, create=True)
    assert find_target({}, "/b.sock", "k", 0, 2, create=True) == made
    assert find_target({"SWITCHML_JOB": "k", "RANK": "0", "WORLD_SIZE": "2"}, "/b.sock", create=True) == made


@pytest.mark.parametrize("missing", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_what_torchrun_would_have_set_is_named(missing: str) -> None:
    with pytest.raises(ConnectError, match=missing):
        find_target({name: value for name, value in TORCHRUN.items() if name != missing})


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1", "localhost", "::1"])
def test_loopback_addresses_are_told_apart_by_host(address: str) -> None:
    key = rendezvous_key({**TORCHRUN, "MASTER_ADDR": address}, script="train.py")
    assert key == f"train-digits @ {socket.gethostname()}:29400/digits"


def test_the_restart_count_is_that_of_all_ranks_on_one_node_only() -> None:
    # Ranks of a node without a failure have a smaller restart count, and must still meet the others.
    assert rendezvous_key(TORCHRUN) == rendezvous_key({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "1"})
    alone = {**TORCHRUN, "GROUP_WORLD_SIZE": "1"}
    assert rendezvous_key(alone, script="train.py") == "train-digits @ node1:29400/digits/2"
    again = {**alone, "TORCHELASTIC_RESTART_COUNT": "1"}
    assert rendezvous_key(again, script="train.py") == "train-digits @ node1:29400/digits/1"


def test_without_torchrun_the_address_is_enough() -> None:
    assert rendezvous_key({"MASTER_ADDR": "node1", "MASTER_PORT": "1"}) == "node1:1"
    assert rendezvous_key({"MASTER_ADDR": "node1", "MASTER_PORT": "1"}, "tp") == "node1:1/tp"


@pytest.mark.parametrize(
    ("run", "script", "name", "label"),
    [
        ("digits", "/home/me/train.py", "", "train-digits"),
        ("none", "train.py", "", "train"),
        ("b9f2f6a8-6c1d-4b7e-9d0c-3f8f0e6f9a11", "my train.py", "", "my-train"),  # of torchrun --standalone
        ("digits", "train.py", "night/7", "night-7"),
        ("", "train.py", "night", "night"),
        ("", "train.py", "", ""),
        ("x" * 100, "", "", "x" * 40),
    ],
)
def test_a_launch_has_the_name_of_its_script_and_its_rendezvous(run: str, script: str, name: str, label: str) -> None:
    environment = {**TORCHRUN, "TORCHELASTIC_RUN_ID": run, "SWITCHML_JOB_NAME": name}
    assert launch_label(environment, script) == label
    other_port = {**environment, "MASTER_PORT": "29401"}
    assert rendezvous_key(environment, script=script) != rendezvous_key(other_port, script=script)


def test_torchrun_inside_job_start_is_refused() -> None:
    inside = {**TORCHRUN, **FULL, "SWITCHML_JOB_DIR": "/run/fabric/jobs/1-train"}
    for arguments in ({}, {"job": "k", "create": True}):
        with pytest.raises(ConnectError, match=r"torchrun runs inside `switchml-ctl job start`.*use one"):
            find_target(inside, **arguments)  # type: ignore[arg-type]


@given(st.text(min_size=1), st.text())
def test_keys_are_short_and_printable_and_differ_by_group(run: str, group: str) -> None:
    environment = {**TORCHRUN, "TORCHELASTIC_RUN_ID": run}
    key = rendezvous_key(environment, group)
    assert 0 < len(key) <= 200
    assert key.isprintable()
    assert key != rendezvous_key(environment, group + "x")


# ---- finding the agent ----


def test_a_run_directory_without_a_fabric_has_the_default_socket_of_an_agent() -> None:
    assert find_target(without("SWITCHML_AGENT")).agent == Path("/run/fabric/agent.sock")


def fabric(directory: Path, *sockets: str) -> Path:
    directory.mkdir(mode=0o700)
    (directory / "fabric.json").write_text(json.dumps({"agents": [{"socket": socket} for socket in sockets]}))
    return directory


def test_the_fabric_of_the_default_run_directory_is_found(tmp_path: Path) -> None:
    fabric(tmp_path / "switchml", "/run/a0.sock")
    environment = {"XDG_RUNTIME_DIR": str(tmp_path), "SWITCHML_CONFIG": ""}
    assert find_target(environment, job="j", rank=0).agent == Path("/run/a0.sock")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "4"}, "a0"),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, "a0"),
        ({"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4"}, "a1"),
        ({"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4"}, "a1"),
        ({"LOCAL_RANK": "9", "LOCAL_WORLD_SIZE": "4"}, "a1"),
        ({}, "a1"),  # rank 6 of 8
    ],
)
def test_the_agents_of_a_fabric_share_the_ranks(tmp_path: Path, environment: dict[str, str], expected: str) -> None:
    run_dir = str(fabric(tmp_path / "run", "a0", "a1"))
    assert (
        find_target({**environment, "SWITCHML_RUN_DIR": run_dir}, job="j", rank=6, world_size=8).agent.name == expected
    )


def test_without_a_fabric_what_to_do_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match=r"holds no fabric, and neither SWITCHML_AGENT .*switchml-ctl up"):
        find_target({"XDG_RUNTIME_DIR": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}, job="j", rank=0)


def test_a_directory_that_others_may_have_made_is_not_trusted(tmp_path: Path) -> None:
    directory = fabric(tmp_path / "run", "/run/a0.sock")
    directory.chmod(0o755)
    with pytest.raises(ConnectError, match=r"open to others.*SWITCHML_AGENT"):
        find_target({"SWITCHML_RUN_DIR": str(directory)}, job="j", rank=0)


@pytest.mark.parametrize("content", ["", "[]", '{"agents": 3}', '{"agents": [{}]}'])
def test_a_damaged_fabric_file(tmp_path: Path, content: str) -> None:
    directory = fabric(tmp_path / "run")
    (directory / "fabric.json").write_text(content)
    with pytest.raises(ConnectError, match=r"fabric\.json was not written by"):
        find_target({"SWITCHML_RUN_DIR": str(directory)}, job="j", rank=0)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"XDG_RUNTIME_DIR": "/run/user/7"},
        {"XDG_CONFIG_HOME": "CONFIG"},
        {"SWITCHML_CONFIG": "CONFIG/switchml/config.toml", "XDG_RUNTIME_DIR": "/run/user/7"},
    ],
)
@pytest.mark.parametrize("run_dir", ["/somewhere/run", "~/run", "run", ""])
def test_the_default_run_directory_is_that_of_switchml_ctl(
    tmp_path: Path, environment: dict[str, str], run_dir: str
) -> None:
    file = tmp_path / "switchml" / "config.toml"
    file.parent.mkdir()
    file.write_text(f'run_dir = "{run_dir}"\n[fabric]\nagents = 2\n')
    environment = {name: value.replace("CONFIG", str(tmp_path)) for name, value in environment.items()}
    environment.setdefault("XDG_CONFIG_HOME", str(tmp_path / "nothing"))
    assert configured_run_directory(environment) == config.load(environment=environment).run_dir


def test_configuration_files_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    with pytest.raises(ConnectError, match="does not exist"):
        configured_run_directory({"SWITCHML_CONFIG": str(file)})
    for content in ("run_dir = [", "run_dir = 7"):
        file.write_text(content)
        with pytest.raises(ConnectError, match=r"c\.toml"):
            configured_run_directory({"SWITCHML_CONFIG": str(file)})


@pytest.mark.parametrize("name", ["rank", "world_size", "job"])
@pytest.mark.parametrize("value", [0.5, 1.0, True, b"1"])
def test_numbers_are_integers(name: str, value: object) -> None:
    arguments: dict[str, object] = {"agent": "/agent.sock", "job": 1, "rank": 0, "world_size": 2, name: value}
    with pytest.raises(TypeError, match=f"{name} is .*; it must be an integer"):
        find_target({}, **arguments)  # type: ignore[arg-type]


def test_integers_of_numpy_are_integers() -> None:
    target = find_target({}, "/agent.sock", np.uint16(3), np.int64(1), np.int8(2))
    assert (target.job, target.rank, target.world_size) == ("3", 1, 2)
