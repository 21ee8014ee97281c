"""Make a release: ``make release VERSION=0.2.0``, on a commit whose version and changelog say so.

It checks the commit, builds the source distribution and the wheels, tests those for this architecture, and makes the
tag. It sends nothing: the last lines say how to.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.wheels import PYTHONS, BuildError, find_python

ROOT: Final = Path(__file__).resolve().parents[1]
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
_VERSION_FILES: Final = {
    "pyproject.toml": r'(?m)^version = "(.+)"$',
    "switchml/common/version.py": r'(?m)^VERSION: Final = "(.+)"$',
    "switchml/native/membership/version.h": r'kVersion\b[^"]*"(.+)"',
}


class ReleaseError(Exception):
    """The commit cannot be released as it is; the message says what to do."""


def main() -> None:
    """Make the release that the arguments name."""
    parser = argparse.ArgumentParser(description="Check, build, test and tag a release; nothing is sent anywhere.")
    parser.add_argument("version", help="as in pyproject.toml")
    parser.add_argument("--check-only", action="store_true", help="stop before anything is built")
    arguments = parser.parse_args()
    try:
        commit = git(ROOT, "rev-parse", "HEAD")
        check(ROOT, arguments.version)
        if not arguments.check_only:
            files = _build_and_test(arguments.version)
            _tag(ROOT, arguments.version, commit)
            names = " ".join(str(path.relative_to(ROOT)) for path in files)
            sys.stdout.write(f"release: tagged v{arguments.version}; to publish it:\n")
            sys.stdout.write(f"  twine upload {names}\n  git push origin v{arguments.version}\n")
    except (ReleaseError, BuildError) as error:
        sys.exit(f"release: {error}")


def check(root: Path, version: str) -> None:
    """Check that the commit that is checked out is the release `version`.

    Raises:
        ReleaseError: it is not.

    """
    if _VERSION.fullmatch(version) is None:
        raise ReleaseError(f"{version!r} is not a version such as 0.2.0 or 0.2.0rc1")
    changed = git(root, "status", "--porcelain")
    if changed:
        raise ReleaseError(f"commit these changes, or stash them:\n{changed}")
    for name, pattern in _VERSION_FILES.items():
        found = re.search(pattern, (root / name).read_text(encoding="utf-8"))
        if found is None or found[1] != version:
            raise ReleaseError(f"{name} has version {found[1] if found else 'none'}: write {version} there, and commit")
    _check_changelog((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    if git(root, "tag", "--list", f"v{version}"):
        raise ReleaseError(f"there is a tag v{version} already; if it was never published: git tag --delete v{version}")


def _check_changelog(text: str, version: str) -> None:
    """Raise ReleaseError unless the changelog has a dated section of this version, and an empty one above it."""
    sections = re.split(r"(?m)^## ", text)[1:]
    titles = [section.partition("\n")[0] for section in sections]
    dated = [title for title in titles if re.fullmatch(rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", title)]
    if not dated:
        raise ReleaseError(f"CHANGELOG.md has no section `## [{version}] - YYYY-MM-DD`: make it from [Unreleased]")
    bodies = dict(zip(titles, (section.partition("\n")[2].strip() for section in sections), strict=True))
    if not bodies[dated[0]]:
        raise ReleaseError(f"the section [{version}] of CHANGELOG.md is empty: say what has changed")
    if bodies.get("[Unreleased]"):
        raise ReleaseError(f"CHANGELOG.md still has changes under [Unreleased]: move them into [{version}]")


def _build_and_test(version: str) -> Sequence[Path]:
    """Build the source distribution and the wheels of a version, and test them; return their paths."""
    dist = ROOT / "dist" / version
    if dist.exists():  # else what an attempt that failed has left there would be published too
        shutil.rmtree(dist)
    _run("-m", "tools.wheels", "--output", str(dist))
    files = sorted(dist.iterdir())
    _run("-m", "twine", "check", "--strict", *map(str, files))
    for python in PYTHONS:  # each has its own wheel for this architecture
        _run("-m", "pytest", "tests/wheel", f"--wheels={dist}", f"--python={find_python(python)}")
    return files


def _tag(root: Path, version: str, commit: str) -> None:
    """Tag the commit that was checked; raise ReleaseError if what was built since then may be something else."""
    if git(root, "rev-parse", "HEAD") != commit or git(root, "status", "--porcelain"):
        raise ReleaseError("the checkout has changed while it was built and tested; there is no tag: start again")
    git(root, "tag", "--annotate", f"v{version}", "--message", f"SwitchML {version}", commit)


def _run(*arguments: str) -> None:
    """Run a Python program of this environment."""
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"`python {' '.join(arguments)}` has failed, as it says above; there is no tag")


def git(root: Path, *arguments: str) -> str:
    """Return what a command of git prints in a repository."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.rstrip()


if __name__ == "__main__":
    main()
