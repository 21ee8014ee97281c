"""The kinds of fabrics that can be started on this machine; each checks its options and makes its layout."""

from collections.abc import Mapping
from typing import Any

from switchml.launch.kinds.embedded import Embedded
from switchml.launch.kinds.host_leaf import HostLeaf
from switchml.launch.kinds.kind import FabricKind, Faults
from switchml.launch.kinds.namespaced import Namespaced
from switchml.launch.kinds.shaped import Shaped

__all__ = ["Embedded", "FabricKind", "Faults", "HostLeaf", "Namespaced", "Shaped", "kind_of"]


def kind_of(options: Mapping[str, Any]) -> FabricKind:
    """Return the fabric that options with the names of FABRIC_OPTIONS describe.

    Raises ConfigurationError for options that contradict each other, and TopologyFileError.
    """
    if options["leaf"]:
        return HostLeaf.from_options(options)
    if options["switch"] or options["topology"]:
        return Namespaced.from_options(options)
    return Embedded.from_options(options)
