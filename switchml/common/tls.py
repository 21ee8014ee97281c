"""TLS on gRPC connections: certificates, the connections that need none, and the identity of the peer.

Every gRPC server and client of SwitchML, except those in tests, is created here. TLS is always mutual (RFC 8446,
section
4.3.2): both sides present a certificate of the same authority. A process has a directory with three PEM files, named as
in a Kubernetes TLS secret; new connections use replaced files.
"""

from __future__ import annotations

import functools
import logging
import socket
import ssl
import stat
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import grpc

from switchml.common.role import Role

if TYPE_CHECKING:
    from cryptography import x509

__all__ = [
    "CA_FILE",
    "CERTIFICATE_FILE",
    "CONTROLLER_NAME",
    "KEY_FILE",
    "SERVICES",
    "Certificates",
    "Identity",
    "ChannelOptions",
    "Pem",
    "Security",
    "TlsError",
    "identity_of",
    "is_local",
    "read_identity",
    "speaks_tls",
    "switch_name",
    "tls_options",
]

_LOG = logging.getLogger(__name__)

CA_FILE: Final = "ca.crt"
CERTIFICATE_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"

SERVICES: Final = ".switchml"
"""The ending of services' DNS names; no agent or person has such a name."""

CONTROLLER_NAME: Final = f"controller{SERVICES}"
"""The DNS name in a controller's certificate: clients ask for it, regardless of the controller's address."""

_FILE_BYTES: Final = 1 << 20
_UNIX: Final = "unix:"
_GREETING_SECONDS: Final = 2.0

ChannelOptions = Sequence[tuple[str, Any]]
F = TypeVar("F", bound=Callable[..., Any])


def switch_name(switch: str) -> str:
    """Return the DNS name in the certificate of a switch, given its name in the controller's configuration."""
    return f"{switch}.switch{SERVICES}"


class TlsError(ValueError):
    """Certificates cannot be used, or are missing for a connection that needs them; the message says what to do."""


@dataclass(frozen=True)
class Pem:
    """The contents of the three files."""

    ca: bytes
    certificate: bytes
    key: bytes = field(repr=False)


class Certificates:
    """The files in a directory: CA_FILE, CERTIFICATE_FILE (may hold a chain) and KEY_FILE."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def stamp(self) -> tuple[tuple[int, int, int], ...]:
        """Return a value that changes when a file is replaced.

        Raises:
            TlsError: a file is missing.

        """
        return tuple((found.st_mtime_ns, found.st_ino, found.st_size) for found in map(self._stat, _FILES))

    def read(self) -> Pem:
        """Return the files' contents.

        Raises:
            TlsError: a file cannot be read or is not PEM, the key is readable by every user or does not match the
                certificate, or the certificate is not valid now.

        """
        if stat.S_IMODE(self._stat(KEY_FILE).st_mode) & 0o007:
            raise TlsError(
                f"{self.directory / KEY_FILE} is readable by every user: `chmod 600` it, and issue a new one"
            )
        pem = Pem(*(self._content(name) for name in _FILES))
        self._check(pem)
        return pem

    def _stat(self, name: str) -> Any:
        try:
            return (self.directory / name).stat()
        except OSError as error:
            raise TlsError(
                f"{self.directory / name} cannot be read: {error.strerror}; {self._others() or _CREATES}"
            ) from None

    def expiry(self) -> float:
        """Return the time after which the certificate is not valid, in seconds since 1970.

        Raises:
            TlsError: the files cannot be used.

        """
        from cryptography import x509

        return x509.load_pem_x509_certificate(self.read().certificate).not_valid_after_utc.timestamp()

    def _others(self) -> str:
        """Return a sentence about directories of certificates that may have been meant; empty without any."""
        for place in (self.directory, self.directory.parent):
            found = sorted(file.parent.name for file in place.glob(f"*/{CERTIFICATE_FILE}"))
            if found:
                return f"{place} has certificates in {', '.join(found)}"
        return ""

    def _content(self, name: str) -> bytes:
        try:
            with (self.directory / name).open("rb") as file:
                return file.read(_FILE_BYTES)
        except OSError as error:
            raise TlsError(f"{self.directory / name} cannot be read: {error.strerror}") from None

    def _check(self, pem: Pem) -> None:
        # The import takes a twentieth of a second, which processes without TLS need not spend.
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        name = CA_FILE
        try:
            x509.load_pem_x509_certificates(pem.ca)
            name = CERTIFICATE_FILE
            certificate = x509.load_pem_x509_certificates(pem.certificate)[0]
            name = KEY_FILE
            key = load_pem_private_key(pem.key, None)
        except (ValueError, TypeError) as error:
            raise TlsError(f"{self.directory / name} is not valid PEM: {error}") from None
        if key.public_key() != certificate.public_key():
            raise TlsError(f"{self.directory / KEY_FILE} is not the key of {CERTIFICATE_FILE} in the same directory")
        now = datetime.now(timezone.utc)
        first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if not first <= now <= last:
            raise TlsError(
                f"{self.directory / CERTIFICATE_FILE} is valid from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} "
                "UTC, which does not include the present; `switchml-ctl certs issue` creates a new one"
            )


_CREATES: Final = "`switchml-ctl certs init` creates certificates"
_FILES: Final = (CA_FILE, CERTIFICATE_FILE, KEY_FILE)


@dataclass(frozen=True)
class Security:
    """The protection of a process's connections. Without certificates none leaves this machine, unless `insecure`.

    With certificates all TCP connections use them, including those on loopback. Unix sockets are protected by their
    mode.
    """

    certificates: Certificates | None = None
    insecure: bool = False

    @classmethod
    def of(cls, tls: Path | str | None, insecure: bool = False) -> Security:
        """Return the security that a directory of certificates, or its absence, stands for."""
        return cls(Certificates(Path(tls)) if tls else None, insecure)

    def certificates_for(self, address: str) -> Certificates | None:
        """Return the certificates for an address, or None if it needs none.

        Raises:
            TlsError: the address needs certificates, and this process has none.

        """
        if address.startswith(_UNIX):
            return None
        if self.certificates is None and not self.insecure and not is_local(address):
            raise TlsError(
                f"{address} is not on loopback; without TLS everyone on the path could read and command SwitchML: "
                "give a directory of certificates (--tls; `switchml-ctl certs init` creates them), or --insecure "
                "if the network is trusted"
            )
        return self.certificates

    def listen(self, server: grpc.aio.Server, address: str) -> int:
        """Let a server listen at an address and return the port.

        Raises:
            TlsError: certificates are missing or not usable.
            RuntimeError: gRPC cannot listen there, and does not say why.

        """
        certificates = self.certificates_for(address)
        if certificates is None:
            return int(server.add_insecure_port(address))
        return int(server.add_secure_port(address, _server_credentials(certificates)))

    def channel(self, address: str, name: str, options: ChannelOptions = ()) -> grpc.Channel:
        """Return a channel to a server whose certificate must be for `name`, with the files' current contents.

        Raises:
            TlsError: certificates are missing or not usable.

        """
        certificates = self.certificates_for(address)
        target = f"ipv4:{address}" if "," in address else address
        if certificates is None:
            return grpc.insecure_channel(target, list(options))
        return grpc.secure_channel(target, _channel_credentials(certificates), _named(name, options))

    def aio_channel(self, address: str, name: str, options: ChannelOptions = ()) -> grpc.aio.Channel:
        """Return the same for asyncio, to a single address.

        Raises:
            TlsError: certificates are missing or not usable.

        """
        certificates = self.certificates_for(address)
        if certificates is None:
            return grpc.aio.insecure_channel(address, list(options))
        return grpc.aio.secure_channel(address, _channel_credentials(certificates), _named(name, options))


def is_local(address: str) -> bool:
    """Return whether an address (HOST:PORT, unix:PATH, or several separated by commas) is on this machine."""
    return all(part.startswith(_UNIX) or _is_loopback(part.rpartition(":")[0]) for part in address.split(","))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _named(name: str, options: ChannelOptions) -> list[tuple[str, Any]]:
    return [*options, ("grpc.ssl_target_name_override", name)]


def _channel_credentials(certificates: Certificates) -> grpc.ChannelCredentials:
    pem = certificates.read()
    return grpc.ssl_channel_credentials(pem.ca, pem.key, pem.certificate)


def _server_credentials(certificates: Certificates) -> grpc.ServerCredentials:
    """Return credentials that use the files' current contents for each new connection."""
    lock = threading.Lock()  # gRPC asks from its own threads
    seen = certificates.stamp()
    told = ""

    def renewed() -> Any:
        nonlocal seen, told
        with lock:
            try:
                now = certificates.stamp()
                if now == seen:
                    return None
                configuration = _configuration(certificates.read())
            except TlsError as error:
                # Perhaps only some of the files have been replaced; the next connection finds the rest.
                if str(error) != told:
                    _LOG.warning("new certificates are not used: %s", error)
                told = str(error)
                return None
            seen, told = now, ""
            _LOG.info("certificates in %s were renewed", certificates.directory)
            return configuration

    return grpc.dynamic_ssl_server_credentials(_configuration(certificates.read()), renewed, True)


def _configuration(pem: Pem) -> Any:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], pem.ca)


def speaks_tls(address: str) -> bool:
    """Return whether a TLS server listens at "host:port"; sends only a TLS hello to it."""
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _GREETING_SECONDS) as connection:
            context.wrap_socket(connection).close()
    except ssl.SSLError as error:  # a server that requires a certificate at once answers with an alert
        return "ALERT" in (error.reason or "")
    except (OSError, ValueError):
        return False
    return True


# ---- the identity of the peer ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Identity:
    """The subject of a certificate (RFC 5280, 4.1.2.6).

    It consists of the common name, a Role as organizational unit, and the tenant as organization. `subject` is the
    whole subject as text (RFC 4514). A field that is missing, unknown or given twice is None or empty.
    """

    subject: str
    name: str
    role: Role | None
    tenant: str


def identity_of(context: grpc.aio.ServicerContext) -> Identity | None:
    """Return the identity of a call's client, from its certificate; None without TLS."""
    shown = context.auth_context().get("x509_pem_cert")
    return read_identity(bytes(shown[0])) if shown else None


@functools.lru_cache(maxsize=256)
def read_identity(pem: bytes) -> Identity:
    """Return the identity in a certificate."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    subject = x509.load_pem_x509_certificate(pem).subject
    role = _only(subject, NameOID.ORGANIZATIONAL_UNIT_NAME)
    return Identity(
        subject.rfc4514_string(),
        _only(subject, NameOID.COMMON_NAME),
        Role(role) if role in set(Role) else None,
        _only(subject, NameOID.ORGANIZATION_NAME),
    )


def _only(subject: x509.Name, name: x509.ObjectIdentifier) -> str:
    found = subject.get_attributes_for_oid(name)
    return str(found[0].value) if len(found) == 1 else ""


# ---- options --------------------------------------------------------------------------------------------------------


def tls_options(prefix: str) -> Callable[[F], F]:
    """Give a click command --tls and --insecure, as `tls` and `insecure`; environment variables have this prefix."""

    def decorate(command: F) -> F:
        directory = click.option(
            "--tls",
            envvar=f"{prefix}_TLS",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="DIRECTORY",
            help=f"Use TLS with {CA_FILE}, {CERTIFICATE_FILE} and {KEY_FILE} in this directory; new connections "
            f"use replaced files.  [env: {prefix}_TLS]",
        )
        insecure = click.option(
            "--insecure",
            is_flag=True,
            envvar=f"{prefix}_INSECURE",
            help="Allow gRPC connections beyond loopback without TLS: everyone who can reach them is an "
            f"administrator.  [env: {prefix}_INSECURE]",
        )
        return directory(insecure(command))

    return decorate
