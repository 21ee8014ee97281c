"""The library's errors, versions and exported names."""

import copy
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import switchml
from switchml.client.errors import SwitchMLError

ROOT = Path(__file__).parents[2]


def test_versions_are_those_of_the_distribution() -> None:
    declared = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert declared is not None
    assert switchml.__version__ == declared[1]
    of_native_code = (ROOT / "switchml/native/membership/version.h").read_text()
    assert f'kVersion = "{declared[1]}"' in of_native_code


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
def test_errors_can_be_copied_and_sent(error: SwitchMLError) -> None:
    for clone in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(clone) is type(error)
        assert vars(clone) == vars(error)
        assert str(clone) == "m"
