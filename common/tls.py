"""TLS on gRPC connections: certificates, which connections may do without, and who the other side is.

Every gRPC server and client of SwitchML, but for those of the tests, is made here. TLS is always mutual (RFC 8446,
section 4.3.2): both sides show a certificate of the same authority. A process has a directory with three PEM files,
named as in a Kubernetes TLS secret; files that are replaced are taken for the next connection.
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
from enum import Enum
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import grpc

if TYPE_CHECKING:
    from cryptography import x509

__all__ = [
    "CA_FILE",
    "CERTIFICATE_FILE",
    "CONTROLLER_NAME",
    "KEY_FILE",
    "Options",
    "Certificates",
    "Identity",
    "Pem",
    "Role",
    "SERVICES",
    "Security",
    "TlsError",
    "identity_of",
    "is_local",
    "speaks_tls",
    "switch_name",
    "tls_options",
]

_LOG = logging.getLogger(__name__)

CA_FILE: Final = "ca.crt"
CERTIFICATE_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"

SERVICES: Final = ".switchml"
"""How the DNS names of services end; no agent or person has such a name."""

CONTROLLER_NAME: Final = f"controller{SERVICES}"
"""The DNS name in a controller's certificate: what a client asks for, at whatever address it found it."""

_FILE_BYTES: Final = 1 << 20
_UNIX: Final = "unix:"
_GREETING_SECONDS: Final = 2.0

Options = Sequence[tuple[str, Any]]
F = TypeVar("F", bound=Callable[..., Any])


def switch_name(switch: str) -> str:
    """Return the DNS name in the certificate of the switch that the controller's configuration calls so."""
    return f"{switch}.switch{SERVICES}"


class TlsError(ValueError):
    """Certificates cannot be used, or a connection that needs them has none; the message says what to do."""


@dataclass(frozen=True)
class Pem:
    """The three files' contents."""

    ca: bytes
    certificate: bytes
    key: bytes = field(repr=False)


class Certificates:
    """The files in a directory: CA_FILE, CERTIFICATE_FILE (may hold a chain) and KEY_FILE."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def stamp(self) -> tuple[tuple[int, int, int], ...]:
        """Return what changes when a file is replaced.

        Raises:
            TlsError: one is missing.

        """
        return tuple((found.st_mtime_ns, found.st_ino, found.st_size) for found in map(self._stat, _FILES))

    def read(self) -> Pem:
        """Return the files' contents.

        Raises:
            TlsError: one cannot be read or is not PEM, the key is open to every user or not the certificate's, or the
                certificate is not valid now.

        """
        if stat.S_IMODE(self._stat(KEY_FILE).st_mode) & 0o007:
            raise TlsError(f"{self.directory / KEY_FILE} is open to every user: `chmod 600` it, and issue a new one")
        pem = Pem(*(self._content(name) for name in _FILES))
        self._check(pem)
        return pem

    def _stat(self, name: str) -> Any:
        try:
            return (self.directory / name).stat()
        except OSError as error:
            raise TlsError(
                f"{self.directory / name} cannot be read: {error.strerror}; `switchml-ctl certs init` makes"
                " certificates"
            ) from None

    def _content(self, name: str) -> bytes:
        try:
            with (self.directory / name).open("rb") as file:
                return file.read(_FILE_BYTES)
        except OSError as error:
            raise TlsError(f"{self.directory / name} cannot be read: {error.strerror}") from None

    def _check(self, pem: Pem) -> None:
        # It takes a twentieth of a second to import, and who needs no TLS does not wait for it.
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
            raise TlsError(f"{self.directory / name} is not usable PEM: {error}") from None
        if key.public_key() != certificate.public_key():
            raise TlsError(f"{self.directory / KEY_FILE} is not the key of {CERTIFICATE_FILE} beside it")
        now = datetime.now(timezone.utc)
        first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if not first <= now <= last:
            raise TlsError(
                f"{self.directory / CERTIFICATE_FILE} is valid from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M}"
                " UTC, and not now; `switchml-ctl certs issue` makes a new one"
            )


_FILES: Final = (CA_FILE, CERTIFICATE_FILE, KEY_FILE)


@dataclass(frozen=True)
class Security:
    """What protects the connections of a process; without certificates none leaves this machine, unless `insecure`.

    With certificates all TCP connections use them, those on loopback too. Unix sockets are protected by their mode.
    """

    certificates: Certificates | None = None
    insecure: bool = False

    @classmethod
    def of(cls, tls: Path | str | None, insecure: bool = False) -> Security:
        """Return what a directory of certificates, if one was given, stands for."""
        return cls(Certificates(Path(tls)) if tls else None, insecure)

    def certificates_for(self, address: str) -> Certificates | None:
        """Return the certificates for an address, None where it needs none.

        Raises:
            TlsError: it needs some, and there are none.

        """
        if address.startswith(_UNIX):
            return None
        if self.certificates is None and not self.insecure and not is_local(address):
            raise TlsError(
                f"{address} is not on loopback, and without TLS everybody on the way could read and command what"
                " SwitchML does: give a directory of certificates (--tls; `switchml-ctl certs init` makes them), or"
                " --insecure where the network is trusted"
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

    def channel(self, address: str, name: str, options: Options = ()) -> grpc.Channel:
        """Return a channel to a server whose certificate must be for `name`, with what the files hold now.

        Raises:
            TlsError: certificates are missing or not usable.

        """
        certificates = self.certificates_for(address)
        target = f"ipv4:{address}" if "," in address else address
        if certificates is None:
            return grpc.insecure_channel(target, list(options))
        return grpc.secure_channel(target, _channel_credentials(certificates), _named(name, options))

    def aio_channel(self, address: str, name: str, options: Options = ()) -> grpc.aio.Channel:
        """Return the same for asyncio, to a single address.

        Raises:
            TlsError: certificates are missing or not usable.

        """
        certificates = self.certificates_for(address)
        if certificates is None:
            return grpc.aio.insecure_channel(address, list(options))
        return grpc.aio.secure_channel(address, _channel_credentials(certificates), _named(name, options))


def is_local(address: str) -> bool:
    """Return whether HOST:PORT, unix:PATH, or each of several with commas between, stays on this machine."""
    return all(part.startswith(_UNIX) or _is_loopback(part.rpartition(":")[0]) for part in address.split(","))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _named(name: str, options: Options) -> list[tuple[str, Any]]:
    return [*options, ("grpc.ssl_target_name_override", name)]


def _channel_credentials(certificates: Certificates) -> grpc.ChannelCredentials:
    pem = certificates.read()
    return grpc.ssl_channel_credentials(pem.ca, pem.key, pem.certificate)


def _server_credentials(certificates: Certificates) -> grpc.ServerCredentials:
    """Return credentials that are those of the files at each new connection."""
    lock = threading.Lock()  # gRPC asks from threads of its own
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
                # Perhaps only half of it is replaced; the next connection finds the rest.
                if str(error) != told:
                    _LOG.warning("new certificates are not taken: %s", error)
                told = str(error)
                return None
            seen, told = now, ""
            _LOG.info("certificates in %s were renewed", certificates.directory)
            return configuration

    return grpc.dynamic_ssl_server_credentials(_configuration(certificates.read()), renewed, True)


def _configuration(pem: Pem) -> Any:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], pem.ca)


def speaks_tls(address: str) -> bool:
    """Return whether a TLS server listens at "host:port"; nothing but a greeting is sent to it."""
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _GREETING_SECONDS) as connection:
            context.wrap_socket(connection).close()
    except ssl.SSLError as error:  # a server that wants our certificate at once answers with an alert
        return "ALERT" in (error.reason or "")
    except (OSError, ValueError):
        return False
    return True


# ---- who the other side is ------------------------------------------------------------------------------------------


class Role(str, Enum):
    """What a certificate is for."""

    CONTROLLER = "controller"
    SWITCH = "switch"
    AGENT = "agent"
    ADMIN = "admin"
    OPERATOR = "operator"
    VIEWER = "viewer"


@dataclass(frozen=True)
class Identity:
    """What a certificate's subject says (RFC 5280, 4.1.2.6).

    That is the common name, a Role as organizational unit, and the tenant as organization. `subject` is all of it as
    text (RFC 4514). What is missing, unknown or given twice is None or empty.
    """

    subject: str
    name: str
    role: Role | None
    tenant: str


def identity_of(context: grpc.aio.ServicerContext) -> Identity | None:
    """Return who makes a call, as its certificate says; None without TLS."""
    shown = context.auth_context().get("x509_pem_cert")
    return _identity(bytes(shown[0])) if shown else None


@functools.lru_cache(maxsize=256)
def _identity(pem: bytes) -> Identity:
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
    """Give a click command --tls and --insecure, as `tls` and `insecure`; variables have this prefix."""

    def decorate(command: F) -> F:
        directory = click.option(
            "--tls",
            envvar=f"{prefix}_TLS",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="DIRECTORY",
            help=f"Speak TLS with {CA_FILE}, {CERTIFICATE_FILE} and {KEY_FILE} of this directory; files that are "
            f"replaced are taken for new connections.  [env: {prefix}_TLS]",
        )
        insecure = click.option(
            "--insecure",
            is_flag=True,
            envvar=f"{prefix}_INSECURE",
            help="Allow gRPC connections beyond loopback without TLS: whoever reaches them is an administrator.  "
            f"[env: {prefix}_INSECURE]",
        )
        return directory(insecure(command))

    return decorate
