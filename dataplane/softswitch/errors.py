"""Errors of requests: one exception, and its encoding in gRPC trailing metadata.

P4Runtime specification, "Error Reporting Messages".
"""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from finsy.proto import p4r, rpc_status

__all__ = ["ERROR_SPACE", "P4RuntimeError", "status_details"]

ERROR_SPACE = "soft-v1model-switchml"
"""The ``space`` of this switch's ``p4.v1.Error`` messages: <target>-<arch>-<vendor>."""

# A client accepts 8 KiB of metadata by default and gets RESOURCE_EXHAUSTED, without any detail, beyond that
# (specification, "gRPC Metadata Maximum Size"). Beyond this size messages are omitted; their codes are kept.
_MESSAGE_BUDGET = 4096
_MESSAGE_LIMIT = 500


class P4RuntimeError(Exception):
    """A request, or one entity of it, cannot be executed.

    ``code`` is the canonical gRPC code that the specification gives for the case, ``message`` is for a person.
    """

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def canonical_code(self) -> int:
        """The code's number in google.rpc.Code."""
        return canonical_code(self.code)


def canonical_code(code: grpc.StatusCode) -> int:
    """Return the number of a gRPC status code in google.rpc.Code."""
    number: int = code.value[0]
    return number


def status_details(message: str, errors: Sequence[P4RuntimeError | None]) -> bytes:
    """Return a serialized google.rpc.Status UNKNOWN with one p4.v1.Error for each element of a batch.

    It is sent as ``grpc-status-details-bin``. ``None`` is an element that succeeded. The last messages of a long list
    are omitted so that the whole fits into a client's default metadata limit if possible.
    """
    status = rpc_status.Status(code=canonical_code(grpc.StatusCode.UNKNOWN), message=message)
    budget = _MESSAGE_BUDGET
    for error in errors:
        detail = p4r.Error()
        if error is not None:
            detail.canonical_code = error.canonical_code
            detail.space = ERROR_SPACE
            text = error.message[:_MESSAGE_LIMIT]
            if len(text) <= budget:
                detail.message = text
                budget -= len(text)
        status.details.add().Pack(detail)
    return status.SerializeToString()
