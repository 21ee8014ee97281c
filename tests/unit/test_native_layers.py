"""The native libraries include only headers of the libraries that their CMakeLists.txt links with."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = (
    "native",
    "dataplane/softswitch/native",
    "host_agent/native",
    "switchml/native",
    "switchml/benchmarks/native",
)
# The code between Python and SwitchML's libraries; every extension module may use it.
BINDINGS = "native/bindings"


def declared() -> dict[str, tuple[str, set[str]]]:
    """Return each folder's library or module, with the libraries that its CMakeLists.txt links it with."""
    found = {}
    for base in PROGRAMS:
        for listing in (ROOT / base).rglob("CMakeLists.txt"):
            text = re.sub(r"#.*", "", listing.read_text(encoding="utf-8"))
            call = re.search(
                r"^(?:switchml_library|switchml_module|switchml_shared_library|frame_device)\(([^)]*)\)",
                text,
                re.MULTILINE,
            )
            if call is None:
                continue
            what, _, links = call[1].partition("LINKS")
            found[listing.parent.relative_to(ROOT).as_posix()] = (what.split()[0], set(links.split()))
    return found


FOLDERS = declared()
LINKS = dict(FOLDERS.values())


def folder_of(path: str) -> str | None:
    """Return the folder of the library that a file belongs to."""
    return max((folder for folder in FOLDERS if path.startswith(f"{folder}/")), key=len, default=None)


@pytest.mark.parametrize("folder", FOLDERS)
def test_includes_are_of_linked_libraries(folder: str) -> None:
    name, links = FOLDERS[folder]
    wrong = []
    for source in sorted((*(ROOT / folder).rglob("*.h"), *(ROOT / folder).rglob("*.cc"))):
        path = source.relative_to(ROOT).as_posix()
        if folder_of(path) != folder:
            continue
        for included in re.findall(r'^#include "([^"]+)"', source.read_text(encoding="utf-8"), re.MULTILINE):
            target = folder_of(included)
            if included.startswith(f"{BINDINGS}/"):
                assert "bindings" in path or path.endswith("module.cc"), f"{path} includes Python's {included}"
            elif target is None or (target != folder and FOLDERS[target][0] not in links):
                wrong.append(f"{path} includes {included}")
    assert not wrong, f"{folder}/CMakeLists.txt does not link {name} with these:\n" + "\n".join(wrong)


def test_libraries_have_an_order() -> None:
    ordered: list[str] = []
    waiting = dict(LINKS)
    while waiting:
        ready = [name for name, links in waiting.items() if links <= set(ordered)]
        assert ready, f"these link in a circle: {sorted(waiting)}"
        for name in ready:
            del waiting[name]
        ordered += ready


def test_every_source_belongs_to_a_library() -> None:
    for base in PROGRAMS:
        for source in (ROOT / base).rglob("*.cc"):
            path = source.relative_to(ROOT).as_posix()
            folder = folder_of(path)
            assert folder is not None, path
            listing = (ROOT / folder / "CMakeLists.txt").read_text(encoding="utf-8")
            assert re.search(rf"^  {re.escape(source.name)}\b", listing, re.MULTILINE), (
                f"{folder}/CMakeLists.txt does not list {source.name}"
            )
