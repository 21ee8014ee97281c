"""What a training process may say to its agent.

Every message is read or refused with BadMessage, and what was read is within the limits. Run by tests/fuzz/run.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

with atheris.instrument_imports(include=["host_agent.messages", "json"]):
    from host_agent.errors import BadMessage
    from host_agent.messages import MESSAGE_BYTES, Attach, CheckFailed, Close, Missing, parse

NAMES = ("attach", "close", "missing", "check_failed", "attach", "x")
KEYS = {
    "attach": ("version", "job", "rank", "world_size", "pid", "create", "timeout", "slots"),
    "close": ("loss",),
    "check_failed": ("position", "call"),
}


def value(data: atheris.FuzzedDataProvider, depth: int = 0) -> str:
    kind = data.ConsumeIntInRange(0, 9)
    if kind <= 3:
        return str(data.ConsumeIntInRange(0, 70))
    if kind == 4:
        return str(data.ConsumeInt(9))
    if kind == 5:
        return '"' + data.ConsumeUnicodeNoSurrogates(data.ConsumeIntInRange(0, 210)).replace('"', "") + '"'
    if kind == 6:
        return data.PickValueInList(["true", "false", "null", "NaN", "1e999", "-1", "1.5", "[]"])
    if kind == 7 and depth < 3:
        keys = ("sequence", "operation", "dtype", "elements", "root")
        return "{" + ", ".join(f'"{key}": {value(data, depth + 1)}' for key in keys) + "}"
    return '"name"'


def message(data: atheris.FuzzedDataProvider) -> bytes:
    """Mostly JSON, with the right keys."""
    if data.ConsumeIntInRange(0, 3) == 0:
        return data.ConsumeBytes(MESSAGE_BYTES + 10)
    name = data.PickValueInList(list(NAMES))
    keys = [key for key in KEYS.get(name, ()) if data.ConsumeIntInRange(0, 7) != 0]
    return ("{" + ", ".join([f'"type": "{name}"', *(f'"{key}": {value(data)}' for key in keys)]) + "}").encode()


def one_input(raw: bytes) -> None:
    try:
        request = parse(message(atheris.FuzzedDataProvider(raw)))
    except BadMessage as error:
        assert str(error)
        return
    assert isinstance(request, (Attach, Close, Missing, CheckFailed))
    if isinstance(request, Attach):
        assert 0 <= request.rank < 64
        assert len(request.job) <= 200
        assert request.world_size is None or 0 <= request.world_size <= 64
        if request.create:
            assert request.world_size is not None
            assert request.rank < request.world_size
            assert 0 < request.timeout <= 86400
    if isinstance(request, Close):
        assert len(request.loss) <= 500


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
