"""A switch and a controller that speak TLS, on loopback, with certificates of an authority made for the test."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import grpc

from switchml.common.role import Role
from switchml.common.tls import CONTROLLER_NAME, Certificates, Pem
from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto import switchml_pb2_grpc as pb_grpc
from switchml.controller.rpc_errors import from_rpc_error
from switchml.ops import certificates
from tests.support.controller_harness import ControllerProcess, configuration
from tests.support.soft_switch import SwitchProcess, running_switch

SECONDS = 30.0


def expired(directory: Path, role: Role, name: str) -> Path:
    """Issue a certificate of the authority in `directory` that was valid until yesterday."""
    then = datetime.now(timezone.utc) - timedelta(days=3)
    return certificates.issue(directory, role, name, days=1, not_before=then).directory


def unchecked(directory: Path) -> Pem:
    """Return the contents of the files without the checks by which SwitchML's programs refuse unusable ones."""
    return Pem(*((directory / name).read_bytes() for name in ("ca.crt", "tls.crt", "tls.key")))


def call(address: str, credentials: grpc.ChannelCredentials | None, name: str = CONTROLLER_NAME) -> pb.InfoResponse:
    """Ask a controller for its information over a separate channel; raises the errors of ControllerClient."""
    options = [("grpc.ssl_target_name_override", name)] if credentials is not None else []
    channel = (
        grpc.secure_channel(address, credentials, options)
        if credentials is not None
        else grpc.insecure_channel(address)
    )
    with channel:
        try:
            stub = pb_grpc.ControlStub(channel)  # type: ignore[no-untyped-call]
            answer: pb.InfoResponse = stub.Info(pb.InfoRequest(), timeout=SECONDS)
            return answer
        except grpc.RpcError as error:
            raise from_rpc_error(error, address) from None


def credentials(pem: Pem) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(pem.ca, pem.key, pem.certificate)


@dataclass
class SecuredFabric:
    """`certificates` was made by `switchml-ctl certs init`, `other` by another authority."""

    certificates: Path
    other: Path
    switch: SwitchProcess
    controller: ControllerProcess

    @property
    def address(self) -> str:
        return self.controller.listen

    def client(self, who: str, timeout: float = SECONDS) -> ControllerClient:
        return ControllerClient(self.address, timeout, tls=self.certificates / who)

    def renew(self, authority: Path, who: str = "controller") -> None:
        """Replace a process's certificates by those of an authority."""
        for name in ("ca.crt", "tls.key", "tls.crt"):
            shutil.copy(authority / who / name, self.certificates / who / f"{name}.new")
            (self.certificates / who / f"{name}.new").replace(self.certificates / who / name)
        Certificates(self.certificates / who).read()


@contextlib.contextmanager
def secured_fabric(directory: Path, more: str = "") -> Iterator[SecuredFabric]:
    """Run a secured fabric; `more` is added to the controller's configuration."""
    made, other = directory / "certificates", directory / "other"
    for place in (made, other):
        certificates.init(place, switches=("s1", "s2"), agents=("a1", "a2"))
    with running_switch(directory, "--udp-port", "1=127.0.0.1:0", "--tls", str(made / "switch-s1")) as switch:
        config = f'[controller]\ntls = "{made / "controller"}"\n{more}\n{configuration(switch, tls="on")}'
        controller = ControllerProcess(directory, config, made / "admin")
        try:
            controller.start().close()
            yield SecuredFabric(made, other, switch, controller)
        finally:
            controller.stop()
