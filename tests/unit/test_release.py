"""`make release` refuses a commit that is not the release, and says what to do."""

from __future__ import annotations

import re
import subprocess
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
