"""The driver of each target."""

from __future__ import annotations

from switchml.common.tls import Security, TlsError, is_local
from switchml.controller.drivers import Driver, SwitchSettings
from switchml.controller.drivers.bfrt import BfrtDriver
from switchml.controller.drivers.p4runtime import P4RuntimeDriver
from switchml.controller.errors import ConfigError

__all__ = ["make_driver"]

_FIRST_ELECTION_ID = 10  # other clients may have lower ones; each controller that takes over has a higher one


def make_driver(settings: SwitchSettings, term: int, security: Security) -> Driver:
    """Return the driver of a switch for the controller that leads in this term.

    `security` is that of the controller; it also protects the connection to a switch that is not on this machine.

    Raises:
        ConfigError: the files of a pipeline are missing or damaged, or certificates are missing.
        VersionMismatch: a P4 program is of another version.

    """
    protected = _security(settings, security)
    if settings.target.interface == "bfrt":
        return BfrtDriver(settings, protected)
    return P4RuntimeDriver(settings, _FIRST_ELECTION_ID + term, protected)


def _security(settings: SwitchSettings, own: Security) -> Security:
    """Return the protection of the connection to one switch."""
    if settings.tls == "off":
        return Security(insecure=True)
    if settings.tls == "auto" and is_local(settings.control):
        return Security()
    if settings.tls == "on" and own.certificates is None:
        raise ConfigError(f"switch {settings.name}: tls is on, and the controller has no certificates (--tls)")
    try:
        own.certificates_for(settings.control)
    except TlsError as error:
        raise ConfigError(f'switch {settings.name}: {error}; or `tls = "off"` for this switch alone') from None
    return own
