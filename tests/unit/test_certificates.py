"""The names for which `switchml-ctl certs` issues certificates."""

from pathlib import Path

import pytest

from switchml.common.errors import CertificateError
from switchml.common.role import Role
from switchml.common.tls import Certificates, TlsError, switch_name
from switchml.ops.certificates import AUTHORITY, init, issue, listed


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


def test_the_list_begins_with_what_expires_first(tmp_path: Path) -> None:
    made = init(tmp_path, switches=("s1",), agents=("host-1",))
    soon = issue(tmp_path, Role.OPERATOR, "alice", tenant="vision", days=30)
    found = listed(tmp_path)
    assert (found[0].directory, found[0].name, found[0].tenant) == (soon.directory, "alice", "vision")
    assert {one.directory for one in found} == {tmp_path / AUTHORITY} | {one.directory for one in [*made, soon]}
    assert (found[-1].directory, found[-1].role) == (tmp_path / AUTHORITY, None)
    assert (found[-1].not_after - found[0].not_after).days > 3600
    assert abs((found[0].not_after - soon.not_after).total_seconds()) < 1
    with pytest.raises(CertificateError, match="has no subdirectories with certificates"):
        listed(tmp_path / "admin")


@pytest.mark.parametrize("wrong", [".", "agent-host-2"], ids=["the parent", "a neighbour"])
def test_a_wrong_directory_names_those_that_exist(wrong: str, tmp_path: Path) -> None:
    init(tmp_path, switches=("s1",), agents=("host-1",))
    with pytest.raises(TlsError) as raised:
        Certificates(tmp_path / wrong).read()
    names = "admin, agent-host-1, controller, operator, switch-s1, viewer"
    assert f"{tmp_path} has certificates in {names}" in str(raised.value)
