"""Mutual TLS between the real processes: accepted and refused clients, and certificates replaced at run time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc

from switchml.common.role import Role
from switchml.common.tls import CONTROLLER_NAME, Certificates, TlsError, switch_name
from switchml.controller.client import ControllerClient
from switchml.controller.errors import ConfigError, ControllerError, ControllerUnavailable
from switchml.ops.certificates import issue
from tests.loopback.controlled_switches import Bmv2Switch, free_port, require_target
from tests.loopback.tls_harness import SECONDS, SecuredFabric, call, credentials, expired, secured_fabric, unchecked
from tests.support.controller_harness import (
    DEADLINE,
    ScriptedAgent,
    configuration,
    controller_command,
    running_controller,
    wait_until,
)
from tests.support.soft_switch import command, running_switch

ELSEWHERE = "192.0.2.1:7600"  # TEST-NET-1: no host has this address


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredFabric]:
    with secured_fabric(tmp_path_factory.mktemp("tls")) as made:
        yield made


def refused(address: str, shown: grpc.ChannelCredentials | None) -> str:
    with pytest.raises(ControllerUnavailable) as caught:
        call(address, shown)
    return str(caught.value)


def test_all_channels_with_certificates(fabric: SecuredFabric) -> None:
    with fabric.client("viewer") as client:
        (switch,) = client.list_switches()
        assert (switch.connected, switch.primary) == (True, True)  # the controller drives it over TLS
    with ScriptedAgent(fabric.address, "a1", tls=fabric.certificates / "agent-a1") as agent:
        assert agent.messages("welcome")
    nobody = f"127.0.0.1:{free_port()}"
    with ControllerClient(f"{nobody},{fabric.address}", tls=fabric.certificates / "viewer") as client:
        client.info()  # the one of two controllers that answers


def test_who_is_refused(fabric: SecuredFabric) -> None:
    call(fabric.address, credentials(unchecked(fabric.certificates / "viewer")))
    theirs, ours = unchecked(fabric.other / "admin"), unchecked(fabric.certificates / "viewer")
    refused(fabric.address, grpc.ssl_channel_credentials(ours.ca, theirs.key, theirs.certificate))
    refused(fabric.address, grpc.ssl_channel_credentials(ours.ca))  # no certificate
    refused(fabric.address, None)  # plaintext
    late = unchecked(expired(fabric.certificates, Role.ADMIN, "late"))
    refused(fabric.address, credentials(late))
    refused(fabric.address, credentials(unchecked(fabric.certificates / "switch-s1")))  # for servers only


def test_a_server_of_another_authority_or_service_is_not_believed(fabric: SecuredFabric) -> None:
    assert "CERTIFICATE_VERIFY_FAILED" in refused(fabric.address, credentials(unchecked(fabric.other / "admin")))
    shown = credentials(unchecked(fabric.certificates / "admin"))
    with pytest.raises(ControllerUnavailable):
        call(fabric.address, shown, name=switch_name("s1"))
    with pytest.raises(ControllerUnavailable):
        call(fabric.switch.address, shown, name=CONTROLLER_NAME)


def test_own_certificates_that_are_of_no_use_are_named(fabric: SecuredFabric, tmp_path: Path) -> None:
    old = expired(fabric.certificates, Role.OPERATOR, "old")
    with pytest.raises(ConfigError, match=r"operator-old/tls.crt is valid from .*, which does not include the present"):
        ControllerClient(fabric.address, tls=old)
    with pytest.raises(ConfigError, match=r"ca.crt cannot be read: No such file .*certs init"):
        ControllerClient(fabric.address, tls=tmp_path)
    mixed = issue(fabric.certificates, Role.VIEWER, "mixed").directory
    (mixed / "tls.key").write_bytes((fabric.certificates / "viewer" / "tls.key").read_bytes())
    with pytest.raises(TlsError, match=r"tls.key is not the key of tls.crt"):
        Certificates(mixed).read()
    (mixed / "tls.key").chmod(0o644)
    with pytest.raises(TlsError, match="readable by every user"):
        Certificates(mixed).read()


def test_nothing_leaves_this_machine_without_tls(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"{ELSEWHERE} is not on loopback.*--tls.*--insecure"):
        ControllerClient(ELSEWHERE)
    ControllerClient(ELSEWHERE, insecure=True).close()
    for program in (
        controller_command("--listen", "0.0.0.0:0", "--store", str(tmp_path / "s")),
        command("--grpc", "0.0.0.0:0", "--udp-port", "1=127.0.0.1:0"),
        [
            sys.executable,
            "-m",
            "switchml.host_agent.daemon",
            "--controller",
            ELSEWHERE,
            "--socket",
            str(tmp_path / "a"),
        ],
        [sys.executable, "-m", "ptf_tests.tofino_emulator.daemon", "--grpc", "0.0.0.0:0"],
    ):
        done = subprocess.run(program, capture_output=True, text=True, timeout=DEADLINE)
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
        assert "is not on loopback" in done.stderr
        assert "--insecure" in done.stderr
    (tmp_path / "c.toml").write_text('[[switches]]\nname = "s"\ntarget = "soft"\naddress = "10.0.0.1"\n')
    with (tmp_path / "c.toml").open("a") as file:
        file.write(f'p4runtime = "{ELSEWHERE}"\n')
    arguments = ("--config", str(tmp_path / "c.toml"), "--listen", "127.0.0.1:0", "--store", str(tmp_path / "s"))
    done = subprocess.run(controller_command(*arguments), capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 1
    assert f"switch s: {ELSEWHERE} is not on loopback" in done.stderr


def test_who_asks_for_it_does_without(tmp_path: Path) -> None:
    with running_switch(tmp_path, "--grpc", "0.0.0.0:0", "--insecure", "--udp-port", "1=127.0.0.1:0") as switch:
        assert switch.address.startswith("0.0.0.0:")
    ready, log = tmp_path / "controller.ready", tmp_path / "controller.log"
    arguments = ("--listen", "0.0.0.0:0", "--insecure", "--store", str(tmp_path / "s"), "--ready-file", str(ready))
    with log.open("wb") as stderr:
        process = subprocess.Popen(controller_command(*arguments), stderr=stderr)
    try:
        wait_until(ready.exists, "the controller is ready")
        address = json.loads(ready.read_text())["address"]
        with ControllerClient(address, insecure=True) as client:
            assert client.list_jobs() == []
        assert (
            f"listening on {address} without TLS: everyone who can reach it can command this process" in log.read_text()
        )
    finally:
        process.terminate()
        assert process.wait(DEADLINE) == 0


def ask(address: str, shown: grpc.ChannelCredentials) -> grpc.StatusCode:
    options = [("grpc.ssl_target_name_override", switch_name("s1"))]
    with grpc.secure_channel(address, shown, options) as channel:
        try:
            p4r_grpc.P4RuntimeStub(channel).Capabilities(p4r.CapabilitiesRequest(), timeout=SECONDS)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def test_only_controllers_and_administrators_drive_a_switch(fabric: SecuredFabric) -> None:
    for who, status in (
        ("controller", grpc.StatusCode.OK),
        ("admin", grpc.StatusCode.OK),
        ("operator", grpc.StatusCode.PERMISSION_DENIED),
        ("agent-a1", grpc.StatusCode.PERMISSION_DENIED),
    ):
        assert ask(fabric.switch.address, credentials(unchecked(fabric.certificates / who))) is status
    assert (
        ask(fabric.switch.address, credentials(unchecked(fabric.other / "controller"))) is grpc.StatusCode.UNAVAILABLE
    )


def test_another_switch_is_not_taken_for_ours(fabric: SecuredFabric, tmp_path: Path) -> None:
    tls = str(fabric.certificates / "switch-s2")
    with running_switch(tmp_path, "--udp-port", "1=127.0.0.1:0", "--tls", tls) as switch:
        config = f'[controller]\ntls = "{fabric.certificates / "controller"}"\n{configuration(switch, tls="on")}'
        with running_controller(tmp_path, config, False, fabric.certificates / "viewer") as (_, client):
            wait_until(lambda: "not connected yet" not in client.list_switches()[0].failure, "the switch is refused")
            (found,) = client.list_switches()
            assert not found.connected


def test_bmv2_over_tls(fabric: SecuredFabric, tmp_path: Path) -> None:
    require_target("bmv2")
    tls = fabric.certificates / "switch-s1"
    files = {"cacert": "ca.crt", "cert": "tls.crt", "key": "tls.key"}
    options = [word for name, file in files.items() for word in (f"--grpc-server-{name}", str(tls / file))]

    class Secured(Bmv2Switch):
        def _command(self) -> list[str]:
            return [*super()._command(), "--grpc-server-ssl", *options, "--grpc-server-with-client-auth"]

    with Secured(tmp_path) as switch:
        own = f'[controller]\ntls = "{fabric.certificates / "controller"}"\n'
        with running_controller(tmp_path, own + switch.configuration(tls="on"), tls=fabric.certificates / "admin"):
            pass  # it is connected
        stranger = credentials(unchecked(fabric.other / "controller"))
        assert ask(switch.address, stranger) is grpc.StatusCode.UNAVAILABLE


def test_rotation_while_streams_live(tmp_path: Path) -> None:
    """Change controller and agent to another authority: connections remain, and new ones need a new certificate."""
    with secured_fabric(tmp_path) as fabric:
        before = credentials(unchecked(fabric.certificates / "viewer"))
        with (
            fabric.client("viewer") as client,
            ScriptedAgent(fabric.address, "a1", tls=fabric.certificates / "agent-a1") as agent,
        ):
            events = client.read_events(follow=True)
            next(events)
            call(fabric.address, before)
            fabric.renew(fabric.other)
            refused(fabric.address, before)
            call(fabric.address, credentials(unchecked(fabric.other / "viewer")))
            assert not agent.ended.is_set()
            with pytest.raises(ControllerError):
                fabric.client("admin", 2).list_jobs()
            fabric.renew(fabric.other, "viewer")
            assert [one.registration.name for one in client.list_agents() if one.live] == ["a1"]  # over a new channel
            # The old stream continues: it reports an agent that connects with new certificates.
            fabric.renew(fabric.other, "agent-a2")
            with ScriptedAgent(fabric.address, "a2", tls=fabric.certificates / "agent-a2"):
                assert any(event.agent == "a2" for event in events)


def test_a_real_agent_takes_new_certificates_when_it_connects_again(tmp_path: Path) -> None:
    with secured_fabric(tmp_path) as fabric:
        agent = [sys.executable, "-m", "switchml.host_agent.daemon", "--controller", fabric.address, "--name", "a1"]
        agent += ["--tls", str(fabric.certificates / "agent-a1"), "--socket", str(tmp_path / "agent.sock")]
        with (tmp_path / "agent.log").open("wb") as log:
            process = subprocess.Popen(agent, stderr=log)

        def registered(who: str) -> bool:
            with fabric.client(who, 2) as client:
                try:
                    return any(one.live for one in client.list_agents())
                except ControllerError:
                    return False

        try:
            wait_until(lambda: registered("viewer"), "the agent has registered")
            for who in ("controller", "agent-a1", "admin", "viewer"):
                fabric.renew(fabric.other, who)
            # The switch keeps the old authority, but the restarted controller has a certificate of the new one.
            fabric.controller.kill()
            fabric.controller.start(wait_connected=False).close()
            wait_until(lambda: registered("viewer"), "the agent has come back")
        finally:
            process.terminate()
            assert process.wait(DEADLINE) == 0, (tmp_path / "agent.log").read_text()


def test_a_client_without_tls_is_told_to_use_it(fabric: SecuredFabric) -> None:
    with ControllerClient(fabric.address) as client:
        with pytest.raises(ControllerUnavailable, match=r"speaks TLS and this client does not: .*--tls DIRECTORY"):
            client.list_jobs()
        with pytest.raises(ControllerUnavailable, match="speaks TLS"):
            list(client.watch_job("any"))


def test_a_client_at_the_switchs_port_is_told_that_it_is_not_the_controller(tmp_path: Path) -> None:
    with (
        running_switch(tmp_path) as switch,
        ControllerClient(switch.address) as client,
        pytest.raises(ControllerUnavailable, match=f"{switch.address} is not a controller of SwitchML"),
    ):
        client.list_jobs()
