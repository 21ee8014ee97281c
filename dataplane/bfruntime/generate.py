"""Generate the Python side of bfruntime.proto.

Run it as ``python -m switchml.dataplane.bfruntime.generate`` in the source tree after changing the file; it needs
grpcio-tools.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

__all__ = ["generate", "main"]

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parent.parent
_SOURCE = "switchml/dataplane/bfruntime/bfruntime.proto"


def generate() -> dict[Path, str]:
    """Return the generated files as a mapping of path to text.

    Raises:
        ImportError: grpcio-tools is not installed.
        RuntimeError: protoc refused the source; its messages are on stderr.

    """
    import grpc_tools
    from grpc_tools import protoc

    # protoc names the module after the path below the include directory, which makes the imports absolute.
    with tempfile.TemporaryDirectory() as directory:
        includes = [f"-I{_ROOT}", f"-I{Path(grpc_tools.__file__).parent / '_proto'}"]
        outputs = [f"--{kind}_out={directory}" for kind in ("python", "pyi", "grpc_python")]
        if protoc.main(["protoc", *includes, *outputs, _SOURCE]) != 0:
            raise RuntimeError(f"protoc refused {_SOURCE}")
        made = Path(directory, _SOURCE).parent
        return {_HERE / path.name: path.read_text() for path in sorted(made.iterdir())}


def main() -> None:
    """Write the generated files."""
    for path, text in generate().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
