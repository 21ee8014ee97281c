"""Build the documentation site from the repository's Markdown pages: ``python -m tools.site``, or ``make site``.

The pages of ``docs/`` keep their paths. README.md is the home page, and `ELSEWHERE` has the pages of other folders.
Links between them become links of the site; links to other files of the repository lead to its address, if
pyproject.toml has one. mkdocs.yml has the navigation, and must name each page once.
"""

from __future__ import annotations

import functools
import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tools.generate import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["ELSEWHERE", "SiteError", "assemble", "main", "navigation", "pages_in"]

ELSEWHERE: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "reference/changelog.md",
    "CONTRIBUTING.md": "extend/contributing.md",
    "SECURITY.md": "reference/reporting.md",
    "dataplane/README.md": "understand/dataplane.md",
    "docker/README.md": "operate/docker.md",
    "ptf_tests/README.md": "extend/packet-tests.md",
}
"""Pages outside of docs/ and studies/, which keep their paths, by path: their places in the site."""

_PICTURES: Final = {".png", ".svg"}
_LINK: Final = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<url>[^)\s]+)\)")
_COMMENT: Final = re.compile(r"^[ \t]*<!--.*?-->[ \t]*\n", re.MULTILINE | re.DOTALL)
_FENCE: Final = re.compile(r"^\s*```")
_BUILD: Final = ROOT / "build" / "site"


class SiteError(Exception):
    """The pages, their links or the navigation are not complete; the text has a line for each defect."""


def main() -> int:
    """Assemble the pages and build the site; return 0, or 1 after a message on stderr."""
    try:
        places = assemble(_BUILD / "pages")
        _check_navigation(set(places.values()))
        done = subprocess.run(
            [Path(sys.executable).with_name("zensical"), "build", "--clean", "--strict"], cwd=ROOT, check=False
        )
        if done.returncode:
            raise SiteError(f"zensical ended with status {done.returncode}")
    except (SiteError, FileNotFoundError) as error:
        sys.stderr.write(f"site: {error}\n")
        return 1
    sys.stdout.write(f"site: {len(places)} pages, {os.path.relpath(_BUILD / 'html' / 'index.html')}\n")
    return 0


def pages_in(root: Path) -> dict[str, str]:
    """Return the places in the site of all pages of a checkout, by their paths there."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "docs/*.md", "studies/*.md"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    return ELSEWHERE | {path: path.removeprefix("docs/") for path in sorted(listed.stdout.split())}


def assemble(place: Path, root: Path = ROOT) -> dict[str, str]:
    """Write the pages and pictures of a checkout to a folder, which is emptied first; return what `pages_in` does.

    Raises:
        SiteError: a link leads to a file that does not exist.

    """
    shutil.rmtree(place, ignore_errors=True)
    places = pages_in(root)
    pictures: dict[str, str] = {}
    wrong: list[str] = []
    source = _source_address(root)

    def rewritten(page: str, match: re.Match[str]) -> str:
        url, text = match["url"], match["text"]
        if re.match(r"[a-z]+:|#", url):
            return match[0]
        path, _, anchor = url.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        if target.startswith("..") or not (root / target).exists():
            wrong.append(f"{page}: {url} does not exist")
            return match[0]
        folder = posixpath.join(target, "README.md")
        target = folder if folder in places else target
        here = posixpath.dirname(places[page])
        if target in places:
            goal = posixpath.relpath(places[target], here or ".") + (f"#{anchor}" if anchor else "")
        elif Path(target).suffix in _PICTURES:
            pictures[target] = target.removeprefix("docs/")
            goal = posixpath.relpath(pictures[target], here or ".")
        elif source:
            goal = f"{source}/{target}"
        else:
            return text
        return f"{match['image']}[{text}]({goal})"

    for page, to in places.items():
        text = "".join(
            part if code else _LINK.sub(functools.partial(rewritten, page), _COMMENT.sub("", part))
            for part, code in _parts((root / page).read_text(encoding="utf-8"))
        )
        file = place / to
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    for picture, to in pictures.items():
        file = place / to
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / picture, file)
    shutil.copyfile(root / "docs" / "site.css", place / "site.css")
    if wrong:
        raise SiteError("\n".join(["links:", *wrong]))
    return places


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text outside and inside of fenced blocks in order, and whether it is inside."""
    part: list[str] = []
    code = False
    for line in text.splitlines(keepends=True):
        fence = _FENCE.match(line) is not None
        if fence and not code:
            yield "".join(part), False
            part, code = [line], True
        elif fence:
            yield "".join([*part, line]), True
            part, code = [], False
        else:
            part.append(line)
    yield "".join(part), code


def _source_address(root: Path) -> str:
    """Return the address below which the repository's files are on the web, or an empty string if none is known."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address = str(project.get("urls", {}).get("Source", ""))
    return address and address.rstrip("/") + "/blob/main"


def _check_navigation(places: set[str]) -> None:
    """Compare the navigation of mkdocs.yml with the pages.

    Raises:
        SiteError: a page is in no navigation or twice in it, or it names a page that does not exist.

    """
    named = list(_names(navigation()))
    wrong = [f"{page} is not in nav of mkdocs.yml" for page in sorted(places - set(named))]
    wrong += [f"nav of mkdocs.yml has {page}, which does not exist" for page in sorted(set(named) - places)]
    wrong += [f"nav of mkdocs.yml has {page} twice" for page in sorted({p for p in named if named.count(p) > 1})]
    if wrong:
        raise SiteError("\n".join(["navigation:", *wrong]))


def navigation() -> list[dict[str, Any]]:
    """Return `nav` of mkdocs.yml: sections by their titles, in order; a section has pages and further sections."""

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)  # noqa: S506, a safe loader
    sections: list[dict[str, Any]] = settings["nav"]
    return sections


def _names(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        yield from _names(list(entry.values()))
    else:
        for part in entry:
            yield from _names(part)


if __name__ == "__main__":
    sys.exit(main())
