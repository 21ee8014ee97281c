"""A Docker engine, the images of docker/compose.yaml built by it, and the two fabrics."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.docker.base_images import pinned, pull, stand_in_for_bmv2, stand_in_for_python
from tests.docker.compose import ROOT, Compose
from tests.docker.debian import Missing, this_debian
from tests.docker.docker_engine import OLDEST_ENGINE, Engine, started

WORK = ROOT / "build" / "docker"
BUILD_SECONDS = 1500


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option with which a nightly run skips."""
    parser.addoption("--optional", action="store_true", help="skip, instead of failing, where something is missing")


def give_up(request: pytest.FixtureRequest, missing: str) -> None:
    """Skip or fail a test that lacks something, as the command line demands."""
    if request.config.getoption("--optional", default=False):
        pytest.skip(f"missing: {missing}")
    pytest.fail(f"missing: {missing}", pytrace=False)


def say(request: pytest.FixtureRequest, line: str) -> None:
    """Print a line at once, although pytest captures output."""
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        sys.stdout.write(f"\n{time.strftime('%H:%M:%S')} {line}")
        sys.stdout.flush()


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Provide the engine that runs here, or else start one and stop it after the tests."""
    found = Engine()
    if found.is_usable():
        say(request, "an engine runs here: it is used")
        yield found
        return
    with ExitStack() as stack:
        try:
            made = stack.enter_context(started(this_debian(), WORK))
        except Missing as reason:
            give_up(request, f"a container engine (Docker {OLDEST_ENGINE} with Compose and buildx), or {reason}")
        say(request, "no engine runs here: one from Debian's packages has been started, and is ended after the tests")
        yield made
        say(request, "the engine is ended")


class Images:
    """Builds each image once."""

    def __init__(self, request: pytest.FixtureRequest, engine: Engine) -> None:
        """Store the parameters; nothing is built yet."""
        self._request = request
        self._engine = engine
        self._bases = pinned((ROOT / "docker" / "Dockerfile").read_text())
        self._stand_ins: dict[str, str] = {}

    def build(self, services: tuple[str, ...], stages: tuple[str, ...]) -> None:
        """Build the images of services, for which the base images of these stages are needed."""
        for stage in stages:
            self._provide(stage)
        start = time.monotonic()
        override = WORK / "override.json"
        override.write_text(json.dumps({"services": {name: {"build": self._options()} for name in services}}))
        Compose(self._engine)("--progress", "plain", "build", *services, timeout=BUILD_SECONDS, files=(override,))
        say(self._request, f"built the images of {', '.join(services)}: {time.monotonic() - start:.0f} s")

    def _provide(self, stage: str) -> None:
        """Pull a base image, or make a substitute."""
        image = self._bases[stage]
        why = pull(self._engine, image)
        if why is None:
            return
        say(self._request, f"{image} cannot be pulled: {why}")
        make = {"python": self._python, "behavioral-model": self._bmv2}[stage]
        try:
            name = make(image)
        except Missing as reason:
            give_up(self._request, f"{image}, or {reason}")
        self._stand_ins[image] = f"docker-image://{name}"
        say(self._request, f"{name}, made of Debian's packages and what is on this machine, stands in for it")

    def _python(self, image: str) -> str:
        return stand_in_for_python(self._engine, this_debian(), image, WORK)

    def _bmv2(self, _image: str) -> str:
        return stand_in_for_bmv2(self._engine, this_debian(), WORK)

    def _options(self) -> dict[str, object]:
        options: dict[str, object] = {"additional_contexts": self._stand_ins}
        return options if self._engine.has_bridge() else {**options, "network": "host"}


@pytest.fixture(scope="session")
def images(request: pytest.FixtureRequest, engine: Engine) -> Images:
    """Provide the builder of images."""
    WORK.mkdir(parents=True, exist_ok=True)
    return Images(request, engine)


@pytest.fixture(scope="session")
def soft_images(images: Images) -> None:
    """Build the images of the daemons and of the tests."""
    images.build(("switch", "demo"), ("python",))


@pytest.fixture(scope="session")
def bmv2_images(images: Images, soft_images: None) -> None:
    """Build BMv2's image."""
    images.build(("bmv2",), ("behavioral-model",))


@pytest.fixture
def compose(engine: Engine) -> Iterator[Compose]:
    """Provide Compose, with no services running before and after a test."""
    made = Compose(engine)
    made.down()
    yield made
    made.down()


def _built(request: pytest.FixtureRequest) -> str:
    """Return the image or service that a test is parametrized with; its images are built first."""
    name: str = request.param
    request.getfixturevalue("bmv2_images" if "bmv2" in name else "soft_images")
    return name


image = pytest.fixture(name="image")(_built)
service = pytest.fixture(name="service")(_built)
