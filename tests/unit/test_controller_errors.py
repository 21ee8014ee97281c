import inspect

import grpc
import pytest

from switchml.controller import errors
from switchml.controller.errors import ControllerError, ControllerUnavailable, NoRoom
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.rpc_errors import DETAIL_KEY, abort, from_rpc_error


class AbortedError(Exception):
    pass


class Context:
    async def abort(
        self, code: grpc.StatusCode, details: str, trailing_metadata: tuple[tuple[str, bytes], ...]
    ) -> None:
        self.code, self.text, self.metadata = code, details, trailing_metadata
        raise AbortedError


class Failed(grpc.RpcError):  # type: ignore[misc]
    def __init__(self, code: grpc.StatusCode, details: str, metadata: tuple[tuple[str, bytes], ...] | None) -> None:
        self.code, self.details, self.trailing_metadata = lambda: code, lambda: details, lambda: metadata


KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, ControllerError)]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_exception_crosses_the_wire(kind: type[ControllerError]) -> None:
    context = Context()
    with pytest.raises(AbortedError):
        await abort(context, kind("no luck", slots_free=12))
    assert context.code is grpc.StatusCode[kind.status]
    raised = from_rpc_error(Failed(context.code, context.text, context.metadata), "here:1")
    assert type(raised) is kind
    assert (str(raised), raised.figures) == ("no luck", {"slots_free": "12"})
    assert kind.__name__ in errors.__all__


def test_errors_of_a_newer_controller_keep_their_words() -> None:
    detail = pb.ErrorDetail(error="Unheard", message="of").SerializeToString()
    raised = from_rpc_error(Failed(grpc.StatusCode.ABORTED, "of", ((DETAIL_KEY, detail),)), "here:1")
    assert type(raised) is ControllerError
    assert str(raised) == "of"


def test_statuses_of_grpc_itself() -> None:
    raised = from_rpc_error(Failed(grpc.StatusCode.UNAVAILABLE, "refused", None), "here:1")
    assert type(raised) is ControllerUnavailable
    assert "here:1" in str(raised)
    assert type(from_rpc_error(Failed(grpc.StatusCode.DEADLINE_EXCEEDED, "", ()), "a")) is errors.DeadlineExceeded
    assert type(from_rpc_error(Failed(grpc.StatusCode.INTERNAL, "", ()), "a")) is errors.InternalError


def test_another_server_is_not_taken_for_a_controller() -> None:
    raised = from_rpc_error(Failed(grpc.StatusCode.UNIMPLEMENTED, "Method not found!", ()), "switch:9559")
    assert type(raised) is ControllerUnavailable
    assert "switch:9559 is not a controller of SwitchML" in str(raised)


def test_statuses_promised_in_the_interface() -> None:
    assert NoRoom.status == "RESOURCE_EXHAUSTED"
    assert errors.JobExists.status == "ALREADY_EXISTS"
    assert errors.NoAgent.status == "FAILED_PRECONDITION"
