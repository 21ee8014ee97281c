"""A development authority and the certificates of a fabric, for `switchml-ctl certs`.

The subject of a certificate has the common name, the role as organizational unit, and the tenant as organization.
Servers have a DNS name for their service, not for their host (switchml.common.tls). Any other authority may issue
equivalent certificates.
"""

import os
import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from switchml.common.errors import CertificateError
from switchml.common.names import NAME_RULE, is_name
from switchml.common.role import Role
from switchml.common.tls import (
    CA_FILE,
    CERTIFICATE_FILE,
    CONTROLLER_NAME,
    KEY_FILE,
    SERVICES,
    read_identity,
    switch_name,
)

__all__ = ["AUTHORITY", "Issued", "init", "issue", "listed"]

AUTHORITY: Final = "ca"
"""The directory of the authority's own key, which no process of a fabric needs."""

_AUTHORITY_DAYS: Final = 3650
_SKEW: Final = timedelta(minutes=5)  # tolerance for the clocks of other machines
_SERVER, _CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
_USES: Final = {Role.CONTROLLER: [_SERVER, _CLIENT], Role.SWITCH: [_SERVER]}


@dataclass(frozen=True)
class Issued:
    """A certificate with its key and the authority's certificate, in `directory`. The authority has no role."""

    directory: Path
    role: Role | None
    name: str
    tenant: str
    not_after: datetime


def init(
    directory: Path, switches: tuple[str, ...] = (), agents: tuple[str, ...] = (), days: int = 365
) -> list[Issued]:
    """Create an authority and certificates for a controller, these switches and agents, and each of three roles.

    Raises:
        CertificateError: the directory already has an authority, a name is not allowed, or a file cannot be written.

    """
    wanted = [(Role.CONTROLLER, "controller"), *((Role.SWITCH, name) for name in switches)]
    wanted += [(Role.AGENT, name) for name in agents]
    wanted += [(role, role.value) for role in (Role.ADMIN, Role.OPERATOR, Role.VIEWER)]
    for _, name in wanted:
        _require_allowed("name", name)
    authority = directory / AUTHORITY
    if (authority / KEY_FILE).exists():
        raise CertificateError(
            f"{authority} already holds an authority; `switchml-ctl certs issue` issues certificates with it, or "
            "choose another directory"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(timezone.utc)
    itself = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "SwitchML development authority")])
    certificate = (
        _builder(itself, itself, key.public_key(), now - _SKEW, now + timedelta(days=_AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write(authority / KEY_FILE, _private(key))
    _write(authority / CA_FILE, certificate.public_bytes(Encoding.PEM))
    return [issue(directory, role, name, days=days) for role, name in wanted]


def issue(
    directory: Path,
    role: Role,
    name: str,
    tenant: str = "",
    days: int = 365,
    not_before: datetime | None = None,
) -> Issued:
    """Issue a certificate with the authority of `init`, replacing an earlier one for the same role and name.

    It is written to ROLE-NAME in the directory, or to ROLE if the two are equal.

    Raises:
        CertificateError: there is no authority, the name or tenant is not allowed, or a file cannot be written.

    """
    _require_allowed("name", name)
    if tenant:
        _require_allowed("tenant", tenant)
    authority_key, authority = _authority(directory)
    first = not_before or datetime.now(timezone.utc) - _SKEW
    last = min(first + _SKEW + timedelta(days=days), authority.not_valid_after_utc)
    fields = [(NameOID.COMMON_NAME, name), (NameOID.ORGANIZATIONAL_UNIT_NAME, role.value)]
    if tenant:
        fields.append((NameOID.ORGANIZATION_NAME, tenant))
    subject = x509.Name([x509.NameAttribute(kind, value) for kind, value in fields])
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(subject, authority.subject, key.public_key(), first, last)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_USES.get(role, [_CLIENT])), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
    )
    if _SERVER in _USES.get(role, ()):
        service = CONTROLLER_NAME if role is Role.CONTROLLER else switch_name(name)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(service)]), critical=False)
    certificate = builder.sign(authority_key, hashes.SHA256())
    place = directory / (role.value if name == role.value else f"{role.value}-{name}")
    # A process that reads between these writes finds a key that does not match, and keeps its old files.
    _write(place / CA_FILE, authority.public_bytes(Encoding.PEM))
    _write(place / KEY_FILE, _private(key))
    _write(place / CERTIFICATE_FILE, certificate.public_bytes(Encoding.PEM))
    return Issued(place, role, name, tenant, last)


def listed(directory: Path) -> list[Issued]:
    """Return the certificates in the subdirectories, also the authority's, those that expire first at the front.

    Raises:
        CertificateError: none is there, or one cannot be read.

    """
    found = []
    for file in directory.glob(f"*/{CERTIFICATE_FILE}"):
        pem, last = _end(file)
        identity = read_identity(pem)
        if identity.role is not None:
            found.append(Issued(file.parent, identity.role, identity.name, identity.tenant, last))
    if not found:
        raise CertificateError(f"{directory} has no subdirectories with certificates of SwitchML")
    authority = directory / AUTHORITY
    if (authority / CA_FILE).exists():
        found.append(Issued(authority, None, "", "", _end(authority / CA_FILE)[1]))
    return sorted(found, key=lambda one: one.not_after)


def _end(file: Path) -> tuple[bytes, datetime]:
    """Return the content of a file with a certificate, and when that expires."""
    try:
        pem = file.read_bytes()
        return pem, x509.load_pem_x509_certificates(pem)[0].not_valid_after_utc
    except (OSError, ValueError) as error:
        raise CertificateError(f"{file} cannot be read: {error}") from error


def _require_allowed(what: str, text: str) -> None:
    if not is_name(text):
        raise CertificateError(f"the {what} {text!r} must be {NAME_RULE}")
    if text.lower().rstrip(".").endswith(SERVICES):  # a DNS name may end with a dot
        raise CertificateError(
            f"the {what} {text!r} ends with {SERVICES}, which is reserved for the names of services; choose another"
        )


def _authority(directory: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    place = directory / AUTHORITY
    try:
        key = load_pem_private_key((place / KEY_FILE).read_bytes(), None)
        certificate = x509.load_pem_x509_certificate((place / CA_FILE).read_bytes())
    except (OSError, ValueError) as error:
        raise CertificateError(
            f"there is no authority in {directory} ({error}); `switchml-ctl certs init` creates one"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{place / KEY_FILE} is not a key that `switchml-ctl certs init` created")
    return key, certificate


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, first: datetime, last: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(first)
        .not_valid_after(last)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes) -> None:
    """Replace a file atomically, with mode 0600."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}")  # created with mode 0600
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except OSError as error:
        raise CertificateError(f"{path} cannot be written: {error.strerror}") from None
