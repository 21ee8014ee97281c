"""The ICRC of frames that Linux's rdma_rxe has sent: contributions of 1 to 248 values."""

from pathlib import Path

import pytest

from ptf_tests.frames import icrc
from switchml.dataplane.constants import PROTOCOL_HEADER_BYTES, ROCEV2_OVERHEAD_BYTES

_LINES = Path(__file__).with_name("rxe_frames.txt").read_text(encoding="ascii").splitlines()
FRAMES = [bytes.fromhex(line) for line in _LINES if not line.startswith("#")]


def test_frames_of_the_kernel() -> None:
    assert all(frame[-4:] == icrc(frame) for frame in FRAMES)
    lengths = {len(frame) - 14 - 20 - 8 - ROCEV2_OVERHEAD_BYTES - PROTOCOL_HEADER_BYTES for frame in FRAMES}
    assert lengths == {4, 32, 256, 992}


@pytest.mark.parametrize("place", [15, 22, 24, 41, 46])
def test_fields_that_routers_change_do_not_matter(place: int) -> None:
    changed = bytearray(FRAMES[0])
    changed[place] ^= 0xFF
    assert icrc(bytes(changed)) == FRAMES[0][-4:]


def test_every_other_byte_matters() -> None:
    frame = FRAMES[0]
    free = {15, 22, 24, 25, 40, 41, 46}
    for place in set(range(14, len(frame) - 4)) - free:
        assert icrc(frame[:place] + bytes([frame[place] ^ 1]) + frame[place + 1 :]) != frame[-4:]
