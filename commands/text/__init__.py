"""What people see of the results of commands: a module for each module of commands.

Only what prints a result imports this package, since it needs rich.
"""

from switchml.commands.text import (
    bench,
    certs,
    completion,
    doctor,
    events,
    fabric,
    jobs,
    profile,
    switches,
    top,
    topology,
    versions,
)
from switchml.commands.text.printing import print_text

__all__ = [
    "print_text",
    "bench",
    "certs",
    "completion",
    "doctor",
    "events",
    "fabric",
    "jobs",
    "profile",
    "switches",
    "top",
    "topology",
    "versions",
]
