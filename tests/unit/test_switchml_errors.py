"""The library's errors, versions and exported names."""

import copy
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import switchml
from switchml.client.agent_connection import JobFailure
from switchml.client.calls import Call
from switchml.client.errors import with_remark
from switchml.client.failures import error_of
from switchml.client.wire import Blocks, Integers

ROOT = Path(__file__).parents[2]


def test_versions_are_those_of_the_distribution() -> None:
    declared = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert declared is not None
    assert switchml.__version__ == declared[1]


def test_everything_exported_exists_and_errors_have_one_root() -> None:
    for name in switchml.__all__:
        exported = getattr(switchml, name)
        if isinstance(exported, type) and issubclass(exported, Exception):
            assert issubclass(exported, switchml.SwitchMLError)
    assert issubclass(switchml.UnsupportedTensor, TypeError)


def test_importing_the_package_loads_neither_numpy_nor_native_code() -> None:
    program = (
        "import sys, switchml, switchml.torch_backend\n"
        "assert {*switchml.__all__, '__all__', '__name__'} <= set(dir(switchml))\n"
        "loaded = {name.split('.')[0] for name in sys.modules} & {'numpy', 'torch', 'grpc', 'asyncio', 'socket'}\n"
        "own = {name for name in sys.modules if name.startswith('switchml.')}\n"
        "assert not loaded, loaded\n"
        "assert own == {'switchml.common', 'switchml.common.version', 'switchml.torch_backend'}, own\n"
        "from switchml import *\n"
        "assert connect is switchml.connect and Work is switchml.Work\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_package_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match=r"module 'switchml' has no attribute 'conect'"):
        switchml.conect  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Comunicator' from 'switchml'"):
        from switchml import Comunicator  # type: ignore[attr-defined]  # noqa: F401


@pytest.mark.parametrize(
    "error",
    [
        switchml.NonFiniteError("m", (1, 2), 7),
        switchml.WorkerLost("m", (3,)),
        switchml.CollectiveTimeout("m", (3,)),
        switchml.JobEnded("m", failed=True),
        switchml.ConnectError("m", "RankTaken"),
        switchml.UnsupportedTensor("m"),
    ],
)
def test_errors_can_be_copied_sent_and_continued(error: switchml.SwitchMLError) -> None:
    for clone in (copy.copy(error), pickle.loads(pickle.dumps(error)), with_remark(error, "And more.")):
        assert type(clone) is type(error)
        assert vars(clone) == vars(error)
    assert str(with_remark(error, "And more.")) == "m And more."
    assert str(error) == "m"


CALL = Call(0, "all_reduce", "sum", sequence=12)


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("WorkerLost", switchml.WorkerLost),
        ("CollectiveMismatch", switchml.CollectiveMismatch),
        ("IntegrityError", switchml.IntegrityError),
        ("JobStopped", switchml.JobEnded),
        ("JobFailed", switchml.JobEnded),
        ("SwitchLost", switchml.SwitchLost),
        ("AgentLost", switchml.AgentLost),
        ("EpochSpent", switchml.EpochSpent),
        ("SomethingNew", switchml.JobEnded),
    ],
)
def test_the_agents_word_becomes_an_exception(word: str, kind: type[switchml.SwitchMLError]) -> None:
    error = error_of(JobFailure(word, (1, 4), "the reason."), "rank 2 of job 'j'", CALL)
    assert type(error) is kind
    assert str(error).startswith("rank 2 of job 'j': the reason. ")
    assert "the job again" in str(error)
    if isinstance(error, switchml.WorkerLost):
        assert error.ranks == (1, 4)
    if isinstance(error, switchml.CollectiveMismatch):
        assert "all_reduce number 12" in str(error)


def test_fingerprints_tell_calls_apart() -> None:
    calls = [
        Call(0, "all_reduce", "sum"),
        Call(0, "all_reduce", "avg"),
        Call(0, "all_reduce", "sum", wire=Blocks(16)),
        Call(0, "all_reduce", "sum", wire=Blocks(8)),
        Call(0, "all_reduce", "sum", wire=Blocks(8, "stochastic")),
        Call(0, "all_reduce", "sum", wire=Blocks(8, "stochastic", 1)),
        Call(0, "all_reduce", "sum", wire=Integers(8, 1)),
        Call(0, "all_reduce", "sum", wire=Blocks(8), skip_zeros=True),
        Call(0, "broadcast"),
        Call(0, "broadcast", root=1),
        Call(0, "barrier"),
        Call(0, "reduce_scatter", "sum"),
        Call(0, "all_gather"),
    ]
    assert len({call.fingerprint for call in calls}) == len(calls)
    assert Call(0, "barrier").fingerprint == Call(0, "barrier", sequence=9).fingerprint
