"""Text about certificates."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

from switchml.commands.certs import CertificateList
from switchml.commands.text.printing import Part, text

__all__: list[str] = []


@text.register(CertificateList)
def _(made: CertificateList) -> Iterator[Part]:
    for one in made.issued:
        what = f"{one.role.value} {one.name}" if one.role else "the authority"
        tenant = f" of {one.tenant}" if one.tenant else ""
        verb = "until" if one.not_after > datetime.now(timezone.utc) else "EXPIRED"
        yield f"{one.directory}: {what}{tenant}, {verb} {one.not_after:%Y-%m-%d %H:%M} UTC"
