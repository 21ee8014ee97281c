"""Quotas: the limits of what each tenant may have at once."""

from __future__ import annotations

from collections.abc import Iterable

from switchml.controller.config import EVERYBODY, TenantConfig
from switchml.controller.errors import QuotaExceeded
from switchml.controller.records import Job

__all__ = ["Quotas"]


class Quotas:
    """The limits of all tenants."""

    def __init__(self, tenants: Iterable[TenantConfig]) -> None:
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._of_member = {member: tenant.name for tenant in self._tenants.values() for member in tenant.members}

    def tenant(self, full_name: str, organization: str) -> str:
        """Return the tenant of the certificate of this full name, which includes its organization."""
        return self._of_member.get(full_name, organization)

    def check(self, tenant: str, live: Iterable[Job], workers: int, slots: int) -> None:
        """Check that a tenant with these live jobs may have one more.

        Raises:
            QuotaExceeded: it may not; the figures hold what it has, asks for, and may have.

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
                    f"{f'tenant {tenant}' if tenant else 'callers without a tenant'} may have {most} {what} at once;"
                    f" {used} are in use and {asked} more were asked for; stop a job, ask for less, or let an"
                    " administrator raise the quota in the controller's configuration",
                    tenant=tenant,
                    quota=what,
                    maximum=most,
                    in_use=used,
                    asked=asked,
                )
