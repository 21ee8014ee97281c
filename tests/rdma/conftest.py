"""Fixtures: the guest's kernel and files, made once."""

import subprocess
from pathlib import Path

import pytest

from tests.rdma.guest import ROOT, SECONDS, GuestUnavailable, Image, build_image, check_available

SOURCE = Path(__file__).with_name("contributor.cc")


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Provide the guest's kernel and files, with the contributor."""
    directory = tmp_path_factory.mktemp("guest")
    contributor = directory / "contributor"
    try:
        check_available()
        compiler = ["g++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-I", str(ROOT)]
        subprocess.run([*compiler, SOURCE, "-libverbs", "-o", contributor], check=True, timeout=SECONDS)
        return build_image(directory, [contributor])
    except GuestUnavailable as reason:
        pytest.skip(f"skipped: no RDMA guest: {reason}")
