"""The options before the command, and the settings and the controller that they select."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from switchml.commands.standard_streams import note

if TYPE_CHECKING:
    from switchml.commands.result import Result
    from switchml.controller.archive import Archive
    from switchml.controller.client import ControllerClient
    from switchml.launch.run_directory import RunDirectory
    from switchml.launch.settings import Settings

__all__ = ["CommandSession"]


@dataclasses.dataclass(frozen=True)
class CommandSession:
    """The options before the command.

    `arguments` is the whole command line; `rendered` returns the text of a result.
    """

    controller: str | None
    run_dir: str | None
    config_file: str | None
    tls: str | None = None
    insecure: bool | None = None
    arguments: Sequence[str] = ()
    rendered: Callable[[Result], str] = repr

    def settings(self, **options: Any) -> Settings:
        """Return the settings; `options`, named table_key, take precedence over all others.

        Raises ConfigurationError.
        """
        from switchml.launch.settings import load

        named = {name.replace("_", ".", 1): value for name, value in options.items()}
        before = {"controller": self.controller, "run_dir": self.run_dir, "tls": self.tls, "insecure": self.insecure}
        return load({**before, **named}, config_file=Path(self.config_file) if self.config_file is not None else None)

    def run_directory(self) -> RunDirectory:
        """The selected run directory."""
        from switchml.launch.run_directory import RunDirectory

        return RunDirectory(self.settings().run_dir)

    @contextlib.contextmanager
    def client(self, timeout: float | None = None, notice: Callable[[str], None] = note) -> Iterator[ControllerClient]:
        """Connect to the selected controller; each call takes at most `timeout` seconds.

        `notice` is called while the controller is away, and if other processes of its fabric have ended. Raises
        NoFabricError, and what ControllerClient raises.
        """
        from switchml.launch import fabric

        settings = self.settings()
        with fabric.connect(settings, fabric.controller_address(settings, notice), timeout, notice) as client:
            yield client

    @contextlib.contextmanager
    def records(self) -> Iterator[ControllerClient | Archive]:
        """Provide the jobs and events of the selected controller, or those in its store if its fabric is down.

        Raises as `client` does, and StoreError.
        """
        from switchml.launch import fabric

        store = fabric.store_without_controller(self.settings())
        if store is None:
            with self.client() as client:
                yield client
            return
        from switchml.controller.archive import Archive

        note(f"no fabric runs in {store.parent}: this is what the store of its last controller holds")
        with Archive(store) as archive:
            yield archive

    def client_until_shown(self) -> ControllerClient:
        """Connect as `client` does, until the result of the command has been shown."""
        return click.get_current_context().find_root().with_resource(self.client())

    def records_until_shown(self) -> ControllerClient | Archive:
        """Provide what `records` does, until the result of the command has been shown."""
        return click.get_current_context().find_root().with_resource(self.records())
