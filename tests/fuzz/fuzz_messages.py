"""Fuzz the messages of a training process to its agent.

Every message must be parsed within the limits or refused with BadMessage. tests/fuzz/run.py runs this.
"""

from __future__ import annotations

import sys

import atheris

import tests.fuzz.our_sources  # noqa: F401 - before the modules of SwitchML

with atheris.instrument_imports(include=["switchml.host_agent.messages", "json"]):
    from switchml.dataplane.constants import PROTOCOL_MAX_WORLD
    from switchml.host_agent.errors import BadMessage
    from switchml.host_agent.messages import Attach, CheckFailed, Close, Missing, parse

from tests.fuzz.process_messages import message


def one_input(raw: bytes) -> None:
    try:
        request = parse(message(atheris.FuzzedDataProvider(raw)))
    except BadMessage as error:
        assert str(error)
        return
    assert isinstance(request, (Attach, Close, Missing, CheckFailed))
    if isinstance(request, Attach):
        assert 0 <= request.rank < PROTOCOL_MAX_WORLD
        assert len(request.job) <= 200
        assert request.world_size is None or 0 <= request.world_size <= PROTOCOL_MAX_WORLD
        if request.create:
            assert request.world_size is not None
            assert request.rank < request.world_size
            assert 0 < request.timeout <= 86400
    if isinstance(request, Close):
        assert len(request.loss) <= 500


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
