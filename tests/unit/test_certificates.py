"""The names for which `switchml-ctl certs` issues certificates."""

from pathlib import Path

import pytest

from switchml.common.errors import CertificateError
from switchml.common.role import Role
from switchml.common.tls import switch_name
from switchml.ops.certificates import init, issue


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certs")
    init(directory)
    return directory


@pytest.mark.parametrize("role", [Role.AGENT, Role.OPERATOR])
@pytest.mark.parametrize(
    "name", ["controller.switchml", "Controller.SwitchML", "controller.switchml.", switch_name("s1")]
)
def test_a_services_name_is_for_that_service_alone(authority: Path, role: Role, name: str) -> None:
    """A TLS library may take the common name for a DNS name if a certificate has no DNS name."""
    before = sorted(authority.iterdir())
    with pytest.raises(CertificateError, match=r"ends with \.switchml"):
        issue(authority, role, name)
    with pytest.raises(CertificateError, match=r"ends with \.switchml"):
        issue(authority, role, "alice", tenant=name)
    assert sorted(authority.iterdir()) == before


def test_init_makes_nothing_where_a_name_is_a_services(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match=r"the name 'controller\.switchml' ends with"):
        init(tmp_path / "certs", agents=("host-1", "controller.switchml"))
    assert not (tmp_path / "certs").exists()
