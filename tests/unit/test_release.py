"""`make release` refuses a commit that is not the release, tests what it has built, and tags just that commit."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from switchml.common.version import VERSION
from tools import release

FILES = {
    "pyproject.toml": '[project]\nname = "switchml"\nversion = "0.2.0"\n',
    "switchml/common/version.py": 'VERSION: Final = "0.2.0"\n',
    "switchml/native/membership/version.h": 'inline constexpr const char* kVersion = "0.2.0";\n',
    "CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\n### Added\n\n- A thing.\n",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Make a repository whose commit is release 0.2.0."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    release.git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def commit(repository: Path) -> None:
    release.git(repository, "add", "--all")
    identity = ("-c", "user.name=Tester", "-c", "user.email=tester@example.org")
    subprocess.run(["git", *identity, "commit", "--quiet", "--message", "A change"], cwd=repository, check=True)


def test_a_commit_that_is_the_release_passes(repository: Path) -> None:
    release.check(repository, "0.2.0")


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("pyproject.toml", "0.2.0", "0.1.0", "pyproject.toml has version 0.1.0: write 0.2.0 there"),
        ("switchml/common/version.py", "0.2.0", "0.1.0", "version.py has version 0.1.0"),
        ("switchml/native/membership/version.h", "0.2.0", "0.1.0", "version.h has version 0.1.0"),
        ("CHANGELOG.md", "- 2026-12-01", "", r"no section `## \[0.2.0\] - YYYY-MM-DD`: make it from"),
        ("CHANGELOG.md", "### Added\n\n- A thing.", "", "is empty: say what has changed"),
        ("CHANGELOG.md", "[Unreleased]\n", "[Unreleased]\n\n- More.\n", "still has changes under"),
    ],
)
def test_a_file_that_does_not_fit_is_named(repository: Path, name: str, old: str, new: str, words: str) -> None:
    path = repository / name
    path.write_text(path.read_text().replace(old, new))
    commit(repository)
    with pytest.raises(release.ReleaseError, match=words):
        release.check(repository, "0.2.0")


def test_other_hindrances_are_named(repository: Path) -> None:
    with pytest.raises(release.ReleaseError, match=r"'v0\.2' is not a version such as"):
        release.check(repository, "v0.2")
    (repository / "left").touch()
    with pytest.raises(release.ReleaseError, match=r"commit these changes, or stash them:\n\?\? left"):
        release.check(repository, "0.2.0")
    (repository / "left").unlink()
    release.git(repository, "tag", "v0.2.0")
    with pytest.raises(release.ReleaseError, match=r"there is a tag v0\.2\.0 already"):
        release.check(repository, "0.2.0")


def test_the_files_of_this_checkout_have_versions_where_they_are_looked_for() -> None:
    for name, pattern in release._VERSION_FILES.items():
        found = re.search(pattern, (release.ROOT / name).read_text())
        assert found is not None, name
        assert found[1] == VERSION


# ---- build and tag ---------------------------------------------------------------------------------------------------


def make_release(repository: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """Run `make release VERSION=0.2.0`; something else is done in the checkout while it builds."""

    def build_and_test(version: str) -> list[Path]:
        meanwhile()
        return [repository / "dist" / version / "switchml-0.2.0.tar.gz"]

    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Tester")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "tester@example.org")
    monkeypatch.setattr(sys, "argv", ["release", "0.2.0"])
    monkeypatch.setattr(release, "ROOT", repository)
    monkeypatch.setattr(release, "_build_and_test", build_and_test)
    release.main()


def test_the_commit_that_was_built_is_tagged(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_release(repository, monkeypatch, lambda: None)
    tagged = release.git(repository, "rev-parse", "v0.2.0^{commit}")
    assert tagged == release.git(repository, "rev-parse", "HEAD")
    assert "twine upload dist/0.2.0/switchml-0.2.0.tar.gz\n  git push origin v0.2.0\n" in capsys.readouterr().out


@pytest.mark.parametrize("committed", [False, True])
def test_a_checkout_that_changes_meanwhile_is_not_tagged(
    repository: Path, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    def change() -> None:
        (repository / "new").touch()
        if committed:
            commit(repository)

    with pytest.raises(SystemExit, match="the checkout has changed while it was built and tested; there is no tag"):
        make_release(repository, monkeypatch, change)
    assert release.git(repository, "tag") == ""


def test_each_python_gets_its_wheel_tested_and_nothing_else_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist = tmp_path / "dist" / "0.2.0"
    dist.mkdir(parents=True)
    (dist / "of_an_attempt_that_failed.whl").touch()
    ran = []

    def run(*arguments: str) -> None:
        ran.append(arguments)
        if "tools.wheels" in arguments:
            dist.mkdir(exist_ok=True)
            (dist / "built.whl").touch()

    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "_run", run)
    monkeypatch.setattr(release, "find_python", "/usr/bin/python{}".format)
    assert release._build_and_test("0.2.0") == [dist / "built.whl"]
    assert ran == [
        ("-m", "tools.wheels", "--output", str(dist)),
        ("-m", "twine", "check", "--strict", str(dist / "built.whl")),
        ("-m", "pytest", "tests/wheel", f"--wheels={dist}", "--python=/usr/bin/python3.10"),
        ("-m", "pytest", "tests/wheel", f"--wheels={dist}", "--python=/usr/bin/python3.11"),
        ("-m", "pytest", "tests/wheel", f"--wheels={dist}", "--python=/usr/bin/python3.12"),
    ]
