"""The Python side of the .proto files. It needs grpcio-tools."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.generate import ROOT

__all__ = ["BFRUNTIME", "CONTROLLER", "generate"]

CONTROLLER: Final = ("switchml/controller/proto/switchml.proto", "switchml/controller/proto/events.proto")
BFRUNTIME: Final = ("switchml/dataplane/bfruntime/bfruntime.proto",)


def generate(*folders: Sequence[str]) -> dict[Path, str]:
    """Return the generated files of these sources of one folder each; by default of all.

    Raises:
        ImportError: grpcio-tools is not installed.
        RuntimeError: protoc refused a source; its messages are on stderr.

    """
    import grpc_tools
    from grpc_tools import protoc

    includes = [f"-I{ROOT}", f"-I{Path(grpc_tools.__file__).parent / '_proto'}"]
    files: dict[Path, str] = {}
    for sources in folders or (CONTROLLER, BFRUNTIME):
        # protoc names the module after the path below the include directory, which makes the imports absolute.
        with tempfile.TemporaryDirectory() as directory:
            outputs = [f"--{kind}_out={directory}" for kind in ("python", "pyi", "grpc_python")]
            if protoc.main(["protoc", *includes, *outputs, *sources]) != 0:
                raise RuntimeError(f"protoc refused {' or '.join(sources)}")
            made, place = Path(directory, sources[0]).parent, (ROOT / sources[0]).resolve().parent
            files |= {place / path.name: path.read_text() for path in sorted(made.iterdir())}
    return files
