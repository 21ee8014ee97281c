"""How much each tenant may have at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from switchml.controller.errors import ConfigError, QuotaExceeded
from switchml.controller.jobs import Job

__all__ = ["EVERYBODY", "Quotas", "TenantConfig"]

EVERYBODY: Final = "*"
"""The name of the quota of all tenants that have none of their own, each for itself."""


@dataclass(frozen=True)
class TenantConfig:
    """One [[tenants]] table: limits of what lives at once, 0 for none.

    `members` are the names (CN) of certificates that belong to the tenant, whatever organization they say.
    """

    name: str
    jobs: int = 0
    workers: int = 0
    slots: int = 0
    members: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the limits.

        Raises:
            ConfigError: one is negative, or everybody has members.

        """
        for what in ("jobs", "workers", "slots"):
            if getattr(self, what) < 0:
                raise ConfigError(f"tenant {self.name!r}: {what} is {getattr(self, what)} and must be 0 or more")
        if self.name == EVERYBODY and self.members:
            raise ConfigError(f"tenant {EVERYBODY!r} stands for all others and has no members")


class Quotas:
    """The limits of all tenants."""

    def __init__(self, tenants: Iterable[TenantConfig]) -> None:
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._of_member = {member: tenant.name for tenant in self._tenants.values() for member in tenant.members}

    def tenant(self, name: str, organization: str) -> str:
        """Return the tenant of the certificate of this name and organization."""
        return self._of_member.get(name, organization)

    def check(self, tenant: str, live: Iterable[Job], workers: int, slots: int) -> None:
        """Check that a tenant with these live jobs may have one more.

        Raises:
            QuotaExceeded: it may not; the figures say what it has, asks for, and may have.

        """
        quota = self._tenants.get(tenant) or self._tenants.get(EVERYBODY)
        if quota is None:
            return
        held = [job for job in live if job.tenant == tenant]
        for what, used, asked, most in (
            ("jobs", len(held), 1, quota.jobs),
            ("workers", sum(job.workers for job in held), workers, quota.workers),
            ("slots", sum(job.slots for job in held), slots, quota.slots),
        ):
            if most and used + asked > most:
                raise QuotaExceeded(
                    f"{f'tenant {tenant}' if tenant else 'who has no tenant'} may have {most} {what} at once, has"
                    f" {used} and asks for {asked}; stop a job, ask for less, or let an administrator raise the quota"
                    " in the controller's configuration",
                    tenant=tenant,
                    quota=what,
                    maximum=most,
                    in_use=used,
                    asked=asked,
                )
