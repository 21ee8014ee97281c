"""Right and wrong messages of a training process to its agent, made from a fuzzer's bytes."""

from __future__ import annotations

import atheris

import tests.fuzz.our_sources  # noqa: F401 - before the modules of SwitchML
from switchml.host_agent.messages import MESSAGE_BYTES

NAMES = ("attach", "close", "missing", "check_failed", "attach", "x")
KEYS = {
    "attach": ("version", "job", "rank", "world_size", "pid", "create", "timeout", "slots", "on_failure"),
    "close": ("epoch", "calls", "loss"),
    "check_failed": ("position", "call"),
}


def value(data: atheris.FuzzedDataProvider, depth: int = 0) -> str:
    kind = data.ConsumeIntInRange(0, 9)
    if kind <= 3:
        return str(data.ConsumeIntInRange(0, 70))
    if kind == 4:
        return str(data.ConsumeInt(9))
    if kind == 5:
        text: str = data.ConsumeUnicodeNoSurrogates(data.ConsumeIntInRange(0, 210))
        return '"' + text.replace('"', "") + '"'
    if kind == 6:
        return str(data.PickValueInList(["true", "false", "null", "NaN", "1e999", "-1", "1.5", "[]", '"shrink"']))
    if kind == 7 and depth < 3:
        keys = ("sequence", "operation", "op", "dtype", "elements", "root")
        return "{" + ", ".join(f'"{key}": {value(data, depth + 1)}' for key in keys) + "}"
    return '"name"'


def message(data: atheris.FuzzedDataProvider) -> bytes:
    """Return a message, which is usually JSON with the right keys."""
    if data.ConsumeIntInRange(0, 3) == 0:
        return bytes(data.ConsumeBytes(MESSAGE_BYTES + 10))
    name = data.PickValueInList(list(NAMES))
    keys = [key for key in KEYS.get(name, ()) if data.ConsumeIntInRange(0, 7) != 0]
    return ("{" + ", ".join([f'"type": "{name}"', *(f'"{key}": {value(data)}' for key in keys)]) + "}").encode()
