"""Write the generated files: `python -m tools.generate`, or only some with `python -m tools.generate counters`.

The tables of claims are made from claims.toml of each study, the constants from dataplane/constants.toml, the counters
from switchml/common/counters.toml, the list of pages from mkdocs.yml, the gRPC modules from .proto files, the pages of
docs/reference from the programs, the settings, the exceptions and the C header, and the type stubs from the extension
modules as they are installed. `--check` writes nothing.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from studies import claims
from tools.generate import ROOT, constants, counters, pages, protos, reference, stubs

GENERATORS: Final[dict[str, Callable[[], dict[Path, str]]]] = {
    "claims": claims.generate,
    "constants": constants.generate,
    "counters": counters.generate,
    "protos": protos.generate,
    "reference": reference.generate,
    "pages": pages.generate,  # with the titles of those before
    "stubs": stubs.generate,
}


def main() -> None:
    """Write or check the files; exits with status 1 if a checked one differs."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.generate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", help=f"of {', '.join(GENERATORS)}; default: all")
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if a file is out of date")
    options = parser.parse_args()
    if unknown := set(options.what) - set(GENERATORS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    stale = False
    for what in options.what or GENERATORS:
        for path, text in GENERATORS[what]().items():
            found = path.read_text(encoding="utf-8") if path.exists() else ""
            if found == text:
                continue
            stale = True
            shown = path.relative_to(ROOT).as_posix()
            if options.check:
                lines = difflib.unified_diff(found.splitlines(), text.splitlines(), shown, "generated", lineterm="")
                sys.stderr.write("\n".join(lines) + "\n")
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
                sys.stderr.write(f"{shown} is written\n")
    if options.check and stale:
        sys.exit("generated files are out of date; run `python -m tools.generate`")


if __name__ == "__main__":
    main()
