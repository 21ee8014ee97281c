"""Add the versions on this machine to those that are tested; the last step of `make nightly`, after all have passed.

    python -m tests.tested_versions

The version of PyTorch is that of the environment that runs this.
"""

import json
import sys

from switchml.ops.tested_versions import FILE, found_versions, numbers, tested_versions


def with_versions(found: dict[str, str]) -> str:
    """Return the text of the file with these versions added."""
    comments = [line for line in FILE.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    tested = {name: set(versions) for name, versions in tested_versions().items()}
    for name, version in found.items():
        tested.setdefault(name, set()).add(version)
    lines = [
        f"{name if name.isalnum() else json.dumps(name)} = {json.dumps(sorted(versions, key=numbers))}"
        for name, versions in tested.items()
    ]
    return "\n".join([*comments, *lines]) + "\n"


def main() -> int:
    text = with_versions(found_versions())
    if text != FILE.read_text(encoding="utf-8"):
        FILE.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{FILE} has new versions; commit it\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
