"""SwitchML as a backend of torch.distributed.

import torch.distributed as dist

dist.init_process_group("switchml")

If this package is installed, importing torch is enough, because the package's entry point registers the backend. If
entry points are turned off (TORCH_DEVICE_BACKEND_AUTOLOAD=0), import this package first.
"""

try:
    import torch as _  # noqa: F401 - to say what to install
except ModuleNotFoundError as _error:
    from switchml.common.installation import install_command

    raise ModuleNotFoundError(f"switchml.torch needs PyTorch: {install_command('torch')}", name="torch") from _error

from switchml.torch.builtin_hooks import replace_builtin_hooks
from switchml.torch.device_backend import switchml_group
from switchml.torch.errors import SwitchMLBackendError, last_error
from switchml.torch.options import Options, configure, current_options
from switchml.torch.paths import PATHS, Link, path_of, path_of_long_sum
from switchml.torch.process_group import SwitchMLProcessGroup
from switchml.torch.statistics import COUNTERS, statistics
from switchml.torch.wire import wire_bits
from switchml.torch_backend import register

__all__ = [
    "register",
    "configure",
    "current_options",
    "Options",
    "path_of",
    "path_of_long_sum",
    "PATHS",
    "Link",
    "wire_bits",
    "statistics",
    "COUNTERS",
    "SwitchMLProcessGroup",
    "switchml_group",
    "SwitchMLBackendError",
    "last_error",
]

register()
replace_builtin_hooks()
