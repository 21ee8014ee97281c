"""The entry points of all programs. They import little, so that an early interrupt finds no half-imported modules."""

import signal
from importlib import import_module
from typing import Any

__all__ = ["agent", "controller", "main", "switch"]


def main() -> None:
    """Run switchml-ctl and exit with its status."""
    root = _imported("switchml.commands.root")
    signal.signal(signal.SIGTERM, root.terminate)
    _imported("switchml.commands.standard_streams").replace_unencodable_characters()
    root.cli.main()


def controller() -> None:
    """Run switchml-controller."""
    _imported("switchml.controller.daemon").main()


def agent() -> None:
    """Run switchml-agent."""
    _imported("switchml.host_agent.daemon").main()


def switch() -> None:
    """Run switchml-switch."""
    _imported("switchml.dataplane.softswitch.daemon").main()


def _imported(name: str) -> Any:
    """Return a module. An interrupt while it is imported ends the process; an exception would print a traceback."""
    interruptible = (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )  # false for a background job of a shell
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    module = import_module(name)
    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return module


if __name__ == "__main__":
    main()
