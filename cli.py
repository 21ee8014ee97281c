"""The entry point of switchml-ctl."""

import signal
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line and exit with its status."""
    interruptible = (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )  # false for a background job of a shell
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # an interrupted import would print a traceback

    from switchml.commands.root import cli, terminate
    from switchml.commands.standard_streams import replace_unencodable_characters

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, terminate)
    replace_unencodable_characters()
    cli.main()


if __name__ == "__main__":
    main()
