"""Versions of PyTorch that are not tested."""

import warnings
from pathlib import Path

import pytest
import torch

from switchml.ops.tested_versions import tested_versions
from switchml.torch import torch_version
from switchml.torch.torch_version import check_torch_version


@pytest.fixture(autouse=True)
def unchecked() -> None:
    check_torch_version.cache_clear()


@pytest.mark.parametrize("version", ["1.13.0", "2.12.1+cpu"])
def test_an_old_version_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(ImportError, match=rf"PyTorch 2\.13 to 2\.15, and this is {version.split('+')[0]}"):
        check_torch_version()


@pytest.mark.parametrize("version", ["2.16.0a0+git1234", "3.0.0"])
def test_a_new_version_is_warned_of_once(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.warns(UserWarning, match="if it fails"):
        check_torch_version()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_torch_version()


def test_this_version_is_one_of_them() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_torch_version()


def test_the_package_asks_for_these_versions() -> None:
    oldest, newest = torch_version._OLDEST, torch_version._NEWEST
    wanted = f'torch = ["torch>={oldest[0]}.{oldest[1]},<{newest[0]}.{newest[1] + 1}"]'
    assert wanted in (Path(__file__).parents[2] / "pyproject.toml").read_text()


def test_the_tested_versions_are_these() -> None:
    tested = [tuple(map(int, version.split(".")[:2])) for version in tested_versions()["torch"]]
    assert (tested[0], tested[-1]) == (torch_version._OLDEST, torch_version._NEWEST)
