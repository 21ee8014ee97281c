"""Requests about switches that can be answered without a connection to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from switchml.common.tls import Security
from switchml.controller.config import SwitchConfig
from switchml.controller.drivers.factory import make_driver
from switchml.controller.errors import InvalidRequest, SwitchUnavailable
from switchml.controller.store.database import Store
from switchml.controller.switches import ManagedSwitch, Switches
from switchml.dataplane.targets import BMV2


async def test_bmv2_has_no_port_511(tmp_path: Path) -> None:
    """BMv2 drops packets to port 511."""
    store = Store(tmp_path / "store.sqlite")
    config = SwitchConfig("b1", BMV2, "10.0.0.254", p4runtime="127.0.0.1:1")
    switch = ManagedSwitch(config, make_driver(config, store.term, Security()))
    switches = Switches([switch], store)
    with pytest.raises(InvalidRequest, match="port 511 is not one of 1 to 510"):
        await switches.set_loss("", [511], {"egress": 0.5}, [])
    with pytest.raises(SwitchUnavailable):
        await switches.set_loss("", [510], {"egress": 0.5}, [])
    store.close()
