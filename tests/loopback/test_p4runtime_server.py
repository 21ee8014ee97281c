"""The soft switch's P4Runtime server: arbitration and hostile clients, as the P4Runtime specification says."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc, rpc_code
from google.protobuf import any_pb2

from tests.support.p4_messages import DELETE, INSERT, rank_entry, update, worker_entry
from tests.support.soft_switch import Client, SwitchProcess, rpc_error, uint128, wait_until

Code = grpc.StatusCode


class TestArbitration:
    def test_highest_election_id_is_primary(self, switch_process: SwitchProcess, election_ids: Iterator[int]) -> None:
        low, high, higher = (next(election_ids) for _ in range(3))
        with Client(switch_process.address, high) as first:
            backup = first.open_stream()
            answer = backup.arbitrate(low)
            assert answer.status.code == rpc_code.ALREADY_EXISTS
            assert answer.election_id == uint128(high)
            assert first.stream.empty()
            # The backup becomes primary: both are told.
            answer = backup.arbitrate(higher)
            assert (answer.status.code, answer.election_id) == (rpc_code.OK, uint128(higher))
            answer = first.stream.next().arbitration
            assert (answer.status.code, answer.election_id) == (rpc_code.ALREADY_EXISTS, uint128(higher))
            assert rpc_error(first.write)[0] == Code.PERMISSION_DENIED
            # The new primary disconnects: there is no primary until a client asks with a high enough id.
            backup.close()
            answer = first.stream.next().arbitration
            assert (answer.status.code, answer.election_id) == (rpc_code.NOT_FOUND, uint128(higher))
            assert first.stream.arbitrate(high).status.code == rpc_code.NOT_FOUND
            assert first.stream.arbitrate(higher).status.code == rpc_code.OK

    def test_primary_that_downgrades_itself(self, switch_process: SwitchProcess, election_ids: Iterator[int]) -> None:
        low, high = next(election_ids), next(election_ids)
        with Client(switch_process.address, high) as first:
            backup = first.open_stream()
            assert backup.arbitrate(None).status.code == rpc_code.ALREADY_EXISTS
            assert first.stream.arbitrate(low).status.code == rpc_code.NOT_FOUND
            assert backup.next().arbitration.status.code == rpc_code.NOT_FOUND
            assert rpc_error(first.write)[0] == Code.PERMISSION_DENIED

    def test_ids_above_64_bits(self, switch_process: SwitchProcess) -> None:
        with Client(switch_process.address, 5 << 64, role="wide") as wide:
            other = wide.open_stream()
            role = p4r.Role(name="wide")
            assert other.arbitrate((4 << 64) + 2**64 - 1, role=role).status.code == rpc_code.ALREADY_EXISTS
            answer = other.arbitrate((5 << 64) + 1, role=role)
            assert (answer.status.code, answer.election_id) == (rpc_code.OK, p4r.Uint128(high=5, low=1))
            assert answer.role.name == "wide"

    def test_zero_is_an_id_and_unset_is_not(self, switch_process: SwitchProcess) -> None:
        role = p4r.Role(name="zero")
        with Client(switch_process.address, 0, role="zero") as zero:
            answer = zero.open_stream().arbitrate(None, role=role)
            assert answer.status.code == rpc_code.ALREADY_EXISTS
        with Client(switch_process.address, None) as none:
            answer = none.open_stream().arbitrate(None, role=p4r.Role(name="unused"))
            assert answer.status.code == rpc_code.NOT_FOUND
            assert not answer.HasField("election_id")

    def test_duplicate_election_id_ends_the_stream(self, client: Client) -> None:
        other = client.open_stream()
        other.ask(client.election_id)
        code, message = rpc_error(other.next)
        assert code == Code.INVALID_ARGUMENT
        assert "election id" in message
        assert "already used" in message
        client.write()  # the primary is still primary

    @pytest.mark.parametrize(
        ("role", "device_id", "code"),
        [
            (None, 2, Code.NOT_FOUND),
            (None, 0, Code.NOT_FOUND),
            (p4r.Role(name="r", config=any_pb2.Any(type_url="example.com/x")), 1, Code.INVALID_ARGUMENT),
            (p4r.Role(id=7), 1, Code.INVALID_ARGUMENT),
            (p4r.Role(name="x" * 1000), 1, Code.INVALID_ARGUMENT),
        ],
    )
    def test_first_message_refused(self, client: Client, role: p4r.Role, device_id: int, code: grpc.StatusCode) -> None:
        stream = client.open_stream()
        stream.ask(1, role=role, device_id=device_id)
        assert rpc_error(stream.next)[0] == code

    def test_device_and_role_of_a_stream_stay(self, client: Client) -> None:
        for changed in ({"device_id": 2}, {"role": p4r.Role(name="another")}):
            stream = client.open_stream()
            stream.arbitrate(None)
            stream.ask(None, **changed)
            assert rpc_error(stream.next)[0] == Code.FAILED_PRECONDITION

    def test_a_named_role_has_its_own_primary(self, client: Client) -> None:
        with Client(client.switch_address, 0, role="monitor") as monitor:
            monitor.write(update(INSERT, rank_entry()))
            client.write(update(DELETE, rank_entry()))

    def test_too_many_streams(self, switch_process: SwitchProcess) -> None:
        with Client(switch_process.address, None) as many:
            role = p4r.Role(name="crowd")
            for _ in range(64):
                many.open_stream().arbitrate(None, role=role)
            refused = many.open_stream()
            refused.ask(None, role=role)
            assert rpc_error(refused.next)[0] == Code.RESOURCE_EXHAUSTED

    def test_no_packet_out_and_no_digests(self, client: Client) -> None:
        client.stream.send(p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=b"x")))
        error = client.stream.next().error
        assert (error.canonical_code, error.WhichOneof("details")) == (rpc_code.UNIMPLEMENTED, "packet_out")
        client.stream.send(p4r.StreamMessageRequest(digest_ack=p4r.DigestListAck(digest_id=4)))
        error = client.stream.next().error
        assert (error.canonical_code, error.WhichOneof("details")) == (rpc_code.INVALID_ARGUMENT, "digest_list_ack")
        client.stream.send(p4r.StreamMessageRequest())
        error = client.stream.next().error
        assert (error.canonical_code, error.WhichOneof("details")) == (rpc_code.INVALID_ARGUMENT, "other")
        client.write()


class TestHostileInput:
    def test_a_message_above_the_limit(self, client: Client) -> None:
        code, _ = rpc_error(client.write, update(INSERT, worker_entry(metadata=bytes(5 * 1024 * 1024))))
        assert code == Code.RESOURCE_EXHAUSTED
        client.write()

    def test_bytes_that_are_no_message(self, client: Client) -> None:
        for method in ("Write", "SetForwardingPipelineConfig", "Capabilities"):
            call = client.channel.unary_unary(f"/p4.v1.P4Runtime/{method}")
            assert rpc_error(call, b"\xff" * 100, timeout=30)[0] not in (Code.OK, Code.DEADLINE_EXCEEDED)
        client.write()

    def test_a_client_that_vanishes(self, switch_process: SwitchProcess, election_ids: Iterator[int]) -> None:
        with Client(switch_process.address, next(election_ids)) as waiting:
            gone = Client(switch_process.address, next(election_ids))
            assert waiting.stream.next().arbitration.status.code == rpc_code.ALREADY_EXISTS
            gone.channel.close()
            assert waiting.stream.next().arbitration.status.code == rpc_code.NOT_FOUND
            wait_until(lambda: not gone.stream._thread.is_alive(), "the stream's thread has ended")

    def test_a_client_that_does_not_read_its_stream(self, client: Client, switch_process: SwitchProcess) -> None:
        flood = (p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=b"x")) for _ in range(200_000))
        # Otherwise the client takes megabytes of answers, which it does not read, before the server notices.
        small_window = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536)]
        channel = grpc.insecure_channel(switch_process.address, options=small_window)
        call = p4r_grpc.P4RuntimeStub(channel).StreamChannel(flood)
        reason = "this client does not read its stream"
        wait_until(lambda: reason in switch_process.log.read_text(), "the server has ended the stream")
        client.write()
        code, message = rpc_error(lambda: list(call))
        assert code == Code.RESOURCE_EXHAUSTED
        assert reason in message
        channel.close()
