"""Registers the backend "switchml" for `torch.distributed.init_process_group`.

The entry point `torch.backends` calls `register` at the end of `import torch`, in every program of an environment in
which SwitchML is installed. So this module is not part of `switchml.torch`, and imports nothing of the library in
programs that do not use it: the backend itself is imported when the first group is made.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

__all__ = ["RECORD", "register"]

RECORD: Final = "SWITCHML_RECORD"
"""The variable by which `switchml-ctl advise` has a program record its steps (`switchml.torch.recording`)."""


class _Plugins(dict[str, Any]):
    """The registered backends of torch.distributed; `keys` leaves out this one.

    If there is any key, torch gives a group of "cpu:gloo" no default backend (`_new_process_group_helper` of PyTorch
    2.13), so that its name, hooks and sequence number are unknown. That would change programs that do not use SwitchML.
    """

    def keys(self) -> Any:
        return [name for name in self if name != "SWITCHML"]


def register() -> None:
    """Register the backend with torch.distributed; calling this again does no harm."""
    import torch.distributed as dist

    if not dist.is_available() or "SWITCHML" in dist.Backend._plugins:
        return
    if "SWITCHML_MASTER_SOCKET" in os.environ:
        from switchml.client.master_port import adopt_master_port

        adopt_master_port(dist.TCPStore)
    dist.Backend._plugins = _Plugins(dist.Backend._plugins)
    dist.Backend.register_backend("switchml", _make_group, extended_api=True, devices=["cpu", "cuda"])
    if RECORD in os.environ:
        from switchml.torch.recording import install

        install(_seconds_of_shared_topk)


def _seconds_of_shared_topk(elements: int) -> float:
    from switchml.torch.compression.computing import seconds_of_shared_topk

    return seconds_of_shared_topk(elements)


def _make_group(backend_options: Any, pg_options: Any = None) -> Any:
    from switchml.torch.torch_version import check_torch_version

    check_torch_version()  # before modules that need a newer version
    from switchml.torch.device_backend import make_backend

    # A back end is told its own device only; the function of torch that asks for it knows those of all.
    config = sys._getframe(1).f_locals.get("backend_config")
    backends = config.get_device_backend_map() if config is not None else {}
    return make_backend(backend_options, pg_options, backends)
