"""The directories that a run directory refuses, and the files that it keeps."""

import os
import socket
from pathlib import Path

import pytest

from switchml.common.errors import RunDirectoryError
from switchml.launch.run_directory import UNIX_PATH_LIMIT, RunDirectory


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    made = RunDirectory(tmp_path / "run")
    made.create()
    return made


def test_it_is_made_for_its_owner_alone(directory: RunDirectory) -> None:
    assert directory.path.stat().st_mode & 0o777 == 0o700
    directory.create()  # the second call changes nothing
    directory.check()


def test_one_that_others_can_enter_is_refused(directory: RunDirectory) -> None:
    directory.path.chmod(0o750)
    with pytest.raises(RunDirectoryError, match=r"open to others \(mode 0750\).*chmod 700"):
        directory.create()


def test_a_link_is_refused(tmp_path: Path, directory: RunDirectory) -> None:
    link = tmp_path / "link"
    link.symlink_to(directory.path)
    with pytest.raises(RunDirectoryError, match="not a directory"):
        RunDirectory(link).create()


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(RunDirectoryError, match="not a directory"):
        RunDirectory(tmp_path / "run").create()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_one_of_another_user_is_refused(directory: RunDirectory) -> None:
    os.chown(directory.path, 12345, -1)
    with pytest.raises(RunDirectoryError, match="belongs to user 12345"):
        directory.create()


def test_state_is_written_and_cleared(directory: RunDirectory) -> None:
    assert directory.read_state() is None
    directory.write_state({"a": 1})
    assert directory.read_state() == {"a": 1}
    directory.clear_state()
    assert directory.read_state() is None


def test_a_damaged_state_is_named(directory: RunDirectory) -> None:
    directory.state_file.write_text("{")
    with pytest.raises(RunDirectoryError, match=r"fabric\.json"):
        directory.read_state()


def test_the_lock_is_held_by_one_at_a_time(directory: RunDirectory) -> None:
    with directory.lock(0), pytest.raises(RunDirectoryError, match="another switchml-ctl"), directory.lock(0.1):
        pass
    with directory.lock(0):
        pass


def test_users_are_seen_until_they_leave(directory: RunDirectory) -> None:
    first, second = directory.use(), directory.use()
    assert directory.used_by_others()
    os.close(first)
    assert directory.used_by_others()
    os.close(second)
    assert not directory.used_by_others()


def test_sockets_lie_in_the_run_directory_where_the_path_is_short_enough(directory: RunDirectory) -> None:
    assert directory.socket_directory("agent-0.sock") == directory.path


def test_sockets_of_a_long_run_directory_go_to_a_short_private_one(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / ("long-" * 25))
    directory.create()
    place = directory.socket_directory("agent-0.sock")
    try:
        assert place != directory.path
        assert place.stat().st_mode & 0o777 == 0o700
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(place / "agent-0.sock"))
        (place / "agent-0.sock").unlink()
    finally:
        place.rmdir()


def test_the_limit_of_a_socket_path_is_the_kernels(tmp_path: Path) -> None:
    path = str(tmp_path / "x") + "y" * UNIX_PATH_LIMIT
    with socket.socket(socket.AF_UNIX) as listener:
        with pytest.raises(OSError, match="too long"):
            listener.bind(path[: UNIX_PATH_LIMIT + 1])
        listener.bind(path[:UNIX_PATH_LIMIT])


def test_job_directories_are_found_by_key_and_newest_by_name(directory: RunDirectory) -> None:
    old, new = directory.job_directory(3, "digits"), directory.job_directory(11, "digits")
    assert directory.find_job_directory("3") == old
    assert directory.find_job_directory("digits") == new
    assert directory.find_job_directory("other") is None
    directory.job_directory(12, "3")  # from a version that allowed such a name
    assert directory.find_job_directory("3") == old


def test_a_job_name_stays_inside_the_directory(directory: RunDirectory) -> None:
    made = directory.job_directory(1, "../../etc/x y")
    assert made.parent == directory.jobs
    assert made.is_dir()
