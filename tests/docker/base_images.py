"""The base images of docker/Dockerfile, or local substitutes if they cannot be pulled."""

import re
import shutil
import subprocess
from pathlib import Path

from tests.docker.debian import Debian, Missing, run
from tests.docker.docker_engine import Engine

CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
PULL_SECONDS = 600


def pinned(dockerfile: str) -> dict[str, str]:
    """Return the base images as written in a Dockerfile, by the names of their stages."""
    return {stage: image for image, stage in re.findall(r"^FROM (\S+@sha256:\S+) AS (\S+)$", dockerfile, re.MULTILINE)}


def pull(engine: Engine, image: str) -> str | None:
    """Pull an image; return the reason if that fails."""
    if engine.docker("image", "inspect", image).returncode == 0:
        return None
    done = engine.docker("pull", "--quiet", image, timeout=PULL_SECONDS)
    return done.stdout.strip().splitlines()[-1] if done.returncode else None


def stand_in_for_python(engine: Engine, debian: Debian, image: str, directory: Path) -> str:
    """Return a local image with the Python of the Debian release that ``image`` names: python:VERSION-slim-RELEASE."""
    release = image.partition("@")[0].rpartition("-")[2]
    name = f"switchml-stand-in-python:{release}"
    if engine.docker("image", "inspect", name).returncode:
        packages = ["ca-certificates", "python3", "python3-dev", "python3-venv"]
        tree = _bootstrap(debian, release, packages, directory)
        (tree / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        for module in (tree / "usr/lib").glob("python3*/**/*.pyc"):  # the image that it replaces has none
            module.unlink()
        _import(engine, tree, name, "--change", f"ENV PIP_CERT={CA_BUNDLE}")
    return name


def stand_in_for_bmv2(engine: Engine, debian: Debian, directory: Path) -> str:
    """Return a local image with this machine's simple_switch_grpc.

    Raises:
        Missing: this machine has no simple_switch_grpc.

    """
    program = shutil.which("simple_switch_grpc")
    if program is None:
        raise Missing("simple_switch_grpc on PATH")
    name = f"switchml-stand-in-bmv2:{debian.release}"
    tree = _bootstrap(debian, debian.release, [], directory)
    libraries = re.findall(r"=> (/\S+)", run("ldd", program))
    for file, elsewhere in ((program, "/usr/local/bin"), *((library, "/usr/local/lib") for library in libraries)):
        # A release's /lib is a link to its /usr/lib. In the image nothing is searched for outside of /usr.
        place = Path(file).parent.resolve()
        copy = tree / (place if place.is_relative_to("/usr") else Path(elsewhere)).relative_to("/") / Path(file).name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists():
            shutil.copy2(file, copy)
    run("chroot", str(tree), "ldconfig")
    _import(engine, tree, name)
    return name


def _bootstrap(debian: Debian, release: str, packages: list[str], directory: Path) -> Path:
    """Return a folder with a small Debian and this machine's certificate authorities."""
    tools = debian.unpack([f"mmdebstrap/{debian.release}"], directory / "mmdebstrap")
    tree = directory / f"tree-{release}"
    shutil.rmtree(tree, ignore_errors=True)
    include = [f"--include={','.join(packages)}"] if packages else []
    mmdebstrap = str(tools / "usr/bin/mmdebstrap")
    run(mmdebstrap, "--quiet", "--mode=root", "--variant=minbase", *include, release, str(tree), debian.mirror)
    if CA_BUNDLE.exists():
        bundle = tree / CA_BUNDLE.relative_to("/")
        bundle.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CA_BUNDLE, bundle)
    return tree


def _import(engine: Engine, tree: Path, name: str, *options: str) -> None:
    """Make an image from a folder, and remove the folder."""
    with subprocess.Popen(["tar", "--directory", str(tree), "--create", "."], stdout=subprocess.PIPE) as archive:
        subprocess.run(
            ["docker", "import", *options, "-", name], env=engine.environment, stdin=archive.stdout, check=True
        )
    if archive.returncode:
        raise Missing(f"{name}: tar has failed")
    shutil.rmtree(tree)
