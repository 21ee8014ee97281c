"""ptf's platform for SwitchML's targets: the ports and the class that implements them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ptf_tests.targets import Description
from ptf_tests.unix_port import UnixPort


def platform_config_update(config: dict[str, Any]) -> None:
    """Fill in the ports of the switch that the file named by ``--platform-args`` describes."""
    description = Description.load(Path(config["platform_args"]))
    config["switchml"] = description
    config["port_map"] = {(0, port): interface for port, interface in description.interfaces.items()}
    if description.unix:
        config["dataplane"] = {"portclass": UnixPort}
