"""The text that people see of the results of commands, one module for each module of commands.

Imported only to print a result, because it needs rich.
"""

from switchml.commands.text import (
    advise,
    bench,
    certs,
    completion,
    doctor,
    events,
    fabric,
    job,
    monitoring,
    probe,
    profile,
    switch,
    synthesize,
    top,
    topology,
    versions,
)
from switchml.commands.text.printing import print_text

__all__ = [
    "print_text",
    "advise",
    "bench",
    "certs",
    "completion",
    "doctor",
    "events",
    "fabric",
    "job",
    "monitoring",
    "probe",
    "profile",
    "switch",
    "synthesize",
    "top",
    "topology",
    "versions",
]
