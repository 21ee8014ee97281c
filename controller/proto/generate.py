"""Generate the Python side of the .proto files here.

Run it as ``python -m switchml.controller.proto.generate`` in the source tree after changing one; it needs grpcio-tools.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

__all__ = ["generate", "main"]

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parent.parent
_SOURCES = ("switchml/controller/proto/switchml.proto", "switchml/controller/proto/events.proto")


def generate() -> dict[Path, str]:
    """Return the generated files: where each belongs and its text.

    Raises:
        ImportError: grpcio-tools is not installed.
        RuntimeError: protoc refused a source; its messages are on stderr.

    """
    from grpc_tools import protoc

    # protoc names the module after the path below the include directory, which makes the imports absolute.
    with tempfile.TemporaryDirectory() as directory:
        outputs = [f"--{kind}_out={directory}" for kind in ("python", "pyi", "grpc_python")]
        if protoc.main(["protoc", f"-I{_ROOT}", *outputs, *_SOURCES]) != 0:
            raise RuntimeError(f"protoc refused {' or '.join(_SOURCES)}")
        made = Path(directory, _SOURCES[0]).parent
        return {_HERE / path.name: path.read_text() for path in sorted(made.iterdir())}


def main() -> None:
    """Write the generated files."""
    for path, text in generate().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
