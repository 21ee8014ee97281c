"""The permissions of roles in certificates, tenants' agents and quotas, and the entries in the event log."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest

from switchml.common.role import Role
from switchml.controller.client import ControllerClient
from switchml.controller.errors import (
    AgentFailed,
    ControllerError,
    JobNotFound,
    NoAgent,
    PermissionDenied,
    QuotaExceeded,
)
from switchml.controller.jobs.rendezvous import job_name
from switchml.controller.northbound.roles import RIGHTS
from switchml.controller.proto import events_pb2_grpc as events_grpc
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto import switchml_pb2_grpc as pb_grpc
from switchml.ops.certificates import issue
from tests.loopback.tls_harness import SecuredFabric, secured_fabric
from tests.support.controller_harness import (
    ControllerProcess,
    ScriptedAgent,
    configuration,
    running_controller,
    wait_until,
)
from tests.support.soft_switch import SwitchProcess

SHARED = """
[agents]
shared = ["a1"]
"""
TENANTS = """
[[tenants]]
name = "vision"
jobs = 2
workers = 3
members = ["elsewhere/bob"]

[[tenants]]
name = "*"
slots = 64
"""
ROLES = ("viewer", "agent", "operator", "admin")


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredFabric]:
    with secured_fabric(tmp_path_factory.mktemp("roles"), SHARED + TENANTS) as made:
        for name, tenant in (("alice", "vision"), ("bob", "elsewhere"), ("carol", "speech")):
            issue(made.certificates, Role.OPERATOR, name, tenant)
        for name, tenant in (("v1", "vision"), ("s1", "speech")):
            issue(made.certificates, Role.AGENT, name, tenant)
        yield made


@pytest.fixture
def agent(fabric: SecuredFabric) -> Iterator[ScriptedAgent]:
    with ScriptedAgent(fabric.address, "a1", tls=fabric.certificates / "agent-a1") as made:
        yield made


def directory(role: str) -> str:
    return "agent-a1" if role == "agent" else role


CALLS: dict[str, tuple[Callable[[ControllerClient], object], set[str]]] = {
    "Jobs/Get": (lambda c: c.get_job(999), set(ROLES)),
    "Jobs/List": (lambda c: c.list_jobs(), set(ROLES)),
    "Jobs/Watch": (lambda c: next(c.watch_job(999)), set(ROLES)),
    "Jobs/Profile": (lambda c: c.profile_job(999), set(ROLES)),
    "Jobs/Start": (lambda c: c.start_job(pb.StartJobRequest(workers=65)), {"operator", "admin"}),
    "Jobs/Stop": (lambda c: c.stop_job(999), {"operator", "admin"}),
    "Jobs/ReportExit": (lambda c: c.report_exit(999, 0, 0), {"operator", "admin"}),
    "Agents/List": (lambda c: c.list_agents(), set(ROLES)),
    "Agents/Probe": (lambda c: c.probe_agents(), {"admin"}),
    "Switches/List": (lambda c: c.list_switches(), set(ROLES)),
    "Switches/Show": (lambda c: c.show_switch(), set(ROLES)),
    "Switches/SetLoss": (lambda c: c.set_loss(ports=[600], ingress=0.5), {"admin"}),
    "Switches/Drain": (lambda c: c.drain_switch(drained=False), {"admin"}),
    "Events/Read": (lambda c: next(c.read_events()), set(ROLES)),
    "Control/Info": (lambda c: c.info(), set(ROLES)),
}


def test_every_call_has_its_roles() -> None:
    """Check that every call of the interface has roles, because otherwise no client may make it."""
    services = (pb_grpc.JobsServicer, pb_grpc.AgentsServicer, pb_grpc.SwitchesServicer, pb_grpc.ControlServicer)
    methods = {
        f"/switchml.v1.{service.__name__.removesuffix('Servicer')}/{name}"
        for service in (*services, events_grpc.EventsServicer)
        for name in vars(service)
        if not name.startswith("_")
    }
    assert methods == RIGHTS.keys()
    assert methods == {f"/switchml.v1.{call}" for call in CALLS} | {"/switchml.v1.Agents/Session"}


def outcome(client: ControllerClient, call: Callable[[ControllerClient], object]) -> ControllerError | None:
    """Return the error of a call; a permitted call may also fail for its arguments."""
    try:
        call(client)
    except ControllerError as error:
        return error
    return None


@pytest.mark.parametrize("role", ROLES)
def test_what_a_role_may_do(fabric: SecuredFabric, role: str) -> None:
    with fabric.client(directory(role)) as client:
        errors = {name: outcome(client, call) for name, (call, _) in CALLS.items()}
    refused = {name: error for name, error in errors.items() if isinstance(error, PermissionDenied)}
    assert all(f"OU={role}" in str(error) and f"has the role {role}" in str(error) for error in refused.values())
    assert errors.keys() - refused.keys() == {name for name, (_, roles) in CALLS.items() if role in roles}


def test_certificates_without_a_role_or_for_servers_may_nothing(fabric: SecuredFabric) -> None:
    with fabric.client("controller") as client, pytest.raises(PermissionDenied, match="has the role controller"):
        client.info()


def session_error(fabric: SecuredFabric, who: str, name: str) -> grpc.RpcError | None:
    with ScriptedAgent(fabric.address, name, tls=fabric.certificates / who) as agent:
        return agent.error


def test_an_agent_speaks_for_itself_only(fabric: SecuredFabric) -> None:
    assert session_error(fabric, "agent-a1", "a1") is None
    error = session_error(fabric, "agent-a1", "a2")
    assert error is not None
    assert error.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "agent a1 does not speak for agent 'a2'" in error.details()
    for who in ("admin", "operator"):
        error = session_error(fabric, who, who)
        assert error is not None
        assert error.code() is grpc.StatusCode.PERMISSION_DENIED


def test_operators_change_the_jobs_of_their_tenant(fabric: SecuredFabric, agent: ScriptedAgent) -> None:
    with fabric.client("operator-alice") as alice, fabric.client("operator-carol") as carol:
        job = alice.start_job(pb.StartJobRequest(workers=1, name="alices"))
        assert job.tenant == "vision"
        for change in (partial(carol.stop_job, job.id), partial(carol.report_exit, job.id, 0, 1)):
            with pytest.raises(PermissionDenied, match=r"job alices belongs to tenant vision.*carol to tenant speech"):
                change()
        assert carol.get_job(job.id).state == job.state
        with fabric.client("operator-bob") as bob:  # a member, whose certificate has another organization
            bob.stop_job(job.id)
        other = carol.start_job(pb.StartJobRequest(workers=1, name="carols", slots=2))
        with fabric.client("admin") as admin:
            admin.stop_job(other.id)


def agent_of(fabric: SecuredFabric, name: str, **options: object) -> ScriptedAgent:
    return ScriptedAgent(fabric.address, name, tls=fabric.certificates / f"agent-{name}", **options)  # type: ignore[arg-type]


def test_ranks_go_to_agents_of_their_tenant(fabric: SecuredFabric) -> None:
    """Check also shared agents; ranks never go to another tenant's agent, even if their own one refuses them."""
    with (
        agent_of(fabric, "a2"),  # without a tenant
        agent_of(fabric, "s1"),
        fabric.client("operator-alice") as alice,
        fabric.client("operator-carol") as carol,
        fabric.client("admin") as admin,
    ):
        with pytest.raises(NoAgent, match=r"the 0 live agents of switch s1 .* Agents of other tenants .* there are 2"):
            alice.start_job(pb.StartJobRequest(workers=1, slots=2))
        with agent_of(fabric, "v1", max_ranks=1):
            job = alice.start_job(pb.StartJobRequest(workers=1, slots=2))
            assert [rank.agent for rank in job.ranks] == ["vision/v1"]
            with pytest.raises(NoAgent, match="the 1 live agents of switch s1 have room for 0"):
                alice.start_job(pb.StartJobRequest(workers=1, slots=2))
            with agent_of(fabric, "a1"):
                assert [rank.agent for rank in alice.start_job(pb.StartJobRequest(workers=1, slots=2)).ranks] == ["a1"]
                found = {one.name: (one.tenant, one.shared) for one in alice.list_agents() if one.live}
            for left in alice.list_jobs():
                alice.stop_job(left.id)
        with (
            agent_of(fabric, "v1", refuses=True),
            pytest.raises(AgentFailed, match="agent vision/v1 refused its ranks"),
        ):
            alice.start_job(pb.StartJobRequest(workers=1, slots=2))
        job = carol.start_job(pb.StartJobRequest(workers=1, slots=2))
        assert [rank.agent for rank in job.ranks] == ["speech/s1"]
        carol.stop_job(job.id)
        job = admin.start_job(pb.StartJobRequest(workers=1, slots=2))
        assert [rank.agent for rank in job.ranks] == ["a2"]
        admin.stop_job(job.id)
    assert found == {
        "a1": ("", True),
        "a2": ("", False),
        "speech/s1": ("speech", False),
        "vision/v1": ("vision", False),
    }


def test_a_lost_rank_begins_again_at_an_agent_of_its_tenant(fabric: SecuredFabric) -> None:
    with agent_of(fabric, "v1", quiesces=True), fabric.client("operator-alice") as alice:
        with agent_of(fabric, "a1") as first:
            job = alice.start_job(pb.StartJobRequest(workers=2, slots=2, on_failure=pb.ON_FAILURE_RESTART))
            assert [rank.agent for rank in job.ranks] == ["a1", "vision/v1"]
            with agent_of(fabric, "s1"):  # it has fewer ranks than v1
                first.disconnect()
                wait_until(lambda: alice.get_job(job.id).changes, "the job goes on")
                assert [rank.agent for rank in alice.get_job(job.id).ranks] == ["vision/v1", "vision/v1"]
        alice.stop_job(job.id)


def imitation(fabric: SecuredFabric, directory: Path, role: Role, name: str, tenant: str) -> Path:
    """Return a certificate with a name that another tenant has as well, in a separate directory."""
    shutil.copytree(fabric.certificates / "ca", directory / tenant / "ca")
    return issue(directory / tenant, role, name, tenant).directory


def test_agents_of_one_name_in_two_tenants(fabric: SecuredFabric, tmp_path: Path) -> None:
    """Check that neither speaks for the other, even with the instance of the other, which is not shown to it."""
    twins = [imitation(fabric, tmp_path, Role.AGENT, "twin", tenant) for tenant in ("vision", "speech")]
    with (
        ScriptedAgent(fabric.address, "twin", tls=twins[0], instance="secret") as first,
        fabric.client("operator-alice") as alice,
    ):
        job = alice.start_job(pb.StartJobRequest(workers=1, slots=2))
        first.event(job, 0, pb.RankEvent.KIND_ATTACHED)
        wait_until(lambda: alice.get_job(job.id).state == pb.JOB_STATE_RUNNING, "the job runs")
        assert not any(one.registration.instance for one in alice.list_agents())
        with ScriptedAgent(fabric.address, "twin", tls=twins[1], instance="secret") as second:
            second.event(job, 0, pb.RankEvent.KIND_LOST)
            heard = second.wait_for("revocation")
            assert (heard.job, heard.epoch) == (job.id, job.epoch)
            live = {one.name: one.ranks_in_use for one in alice.list_agents() if one.live}
            assert live == {"vision/twin": 1, "speech/twin": 0}
            assert not first.ended.is_set()
        assert alice.get_job(job.id).state == pb.JOB_STATE_RUNNING
        assert not first.messages("revocation")
        alice.stop_job(job.id)


def test_a_shared_agents_name_in_another_organization_is_not_shared(fabric: SecuredFabric, tmp_path: Path) -> None:
    with (
        ScriptedAgent(fabric.address, "a1", tls=imitation(fabric, tmp_path, Role.AGENT, "a1", "speech")),
        fabric.client("operator-alice") as alice,
        fabric.client("admin") as admin,
    ):
        assert {one.name: one.shared for one in admin.list_agents() if one.live} == {"speech/a1": False}
        with pytest.raises(NoAgent, match="the 0 live agents"):
            alice.start_job(pb.StartJobRequest(workers=1, slots=2))


def test_a_members_name_in_another_organization_does_not_belong(fabric: SecuredFabric, tmp_path: Path) -> None:
    bob = imitation(fabric, tmp_path, Role.OPERATOR, "bob", "speech")
    with (
        agent_of(fabric, "v1"),
        fabric.client("operator-alice") as alice,
        ControllerClient(fabric.address, tls=bob) as other,
    ):
        job = alice.start_job(pb.StartJobRequest(workers=1, slots=2))
        with pytest.raises(
            PermissionDenied, match=r"job .* belongs to tenant vision, and operator bob to tenant speech"
        ):
            other.stop_job(job.id)
        alice.stop_job(job.id)


def announce(agent: ScriptedAgent, rank: int, world_size: int, key: str = "k") -> None:
    announcement = pb.RankAnnouncement(announcement=rank + 1, key=key, rank=rank, world_size=world_size, slots=2)
    announcement.wait_seconds = 90.0  # longer than a test waits for what happens at once
    agent.send(pb.AgentMessage(rank_announcement=announcement))


def test_tenants_use_the_same_key_without_meeting(fabric: SecuredFabric) -> None:
    with agent_of(fabric, "v1") as v1, agent_of(fabric, "s1") as s1, fabric.client("admin") as admin:
        announce(v1, 0, 2)
        announce(s1, 0, 1)  # another world size, and complete
        assignment = s1.wait_for("assignment")
        announce(v1, 1, 2)
        v1.wait_for("activation")
        assert not v1.messages("rendezvous_refusal")
        found = {job.tenant: (job.name, {rank.agent for rank in job.ranks}) for job in admin.list_jobs()}
        assert found == {
            "vision": (job_name("k", "vision"), {"vision/v1"}),
            "speech": (assignment.name, {"speech/s1"}),
        }
        for job in admin.list_jobs():
            admin.stop_job(job.id)


def test_another_tenants_job_of_a_keys_name_is_named_at_once(fabric: SecuredFabric) -> None:
    with agent_of(fabric, "v1") as v1, agent_of(fabric, "s1"), fabric.client("operator-carol") as carol:
        job = carol.start_job(pb.StartJobRequest(workers=1, name=job_name("k", "vision"), slots=2))
        announce(v1, 0, 1)
        refusal = v1.wait_for("rendezvous_refusal")
        assert refusal.error == "JobExists"
        assert f"a job of another tenant has the name of this key's job, {job.name}; use another key" in refusal.message
        carol.stop_job(job.id)


def test_quotas(fabric: SecuredFabric, agent: ScriptedAgent) -> None:
    with fabric.client("operator-alice") as alice, fabric.client("operator-carol") as carol:
        with pytest.raises(
            QuotaExceeded, match="tenant vision may have 3 workers at once; 0 are in use and 4 more were asked for"
        ):
            alice.start_job(pb.StartJobRequest(workers=4))
        first = alice.start_job(pb.StartJobRequest(workers=2, slots=2))
        with pytest.raises(QuotaExceeded) as caught:
            alice.start_job(pb.StartJobRequest(workers=2, slots=2))
        assert caught.value.figures == {
            "tenant": "vision",
            "quota": "workers",
            "maximum": "3",
            "in_use": "2",
            "asked": "2",
        }
        second = alice.start_job(pb.StartJobRequest(workers=1, slots=2))
        with fabric.client("operator-bob") as bob, pytest.raises(QuotaExceeded, match="2 jobs at once; 2 are in use"):
            bob.start_job(pb.StartJobRequest(workers=1, slots=2))
        with pytest.raises(
            QuotaExceeded, match="tenant speech may have 64 slots at once; 0 are in use and 128 more were asked for"
        ):
            carol.start_job(pb.StartJobRequest(workers=1))  # the switch's default
        third = carol.start_job(pb.StartJobRequest(workers=1, slots=64))
        fabric.controller.kill()  # live jobs also count for the next controller
        fabric.controller.start().close()
        wait_until(lambda: agent.ended.is_set(), "the agent has noticed")
        with ScriptedAgent(fabric.address, "a1", tls=fabric.certificates / "agent-a1"):
            with pytest.raises(QuotaExceeded, match="64 are in use"):
                carol.start_job(pb.StartJobRequest(workers=1, slots=2))
            for job in (first, second, third):
                with fabric.client("admin") as admin:
                    admin.stop_job(job.id)
            carol.stop_job(carol.start_job(pb.StartJobRequest(workers=1, slots=64)).id)


def test_the_event_log_says_who_did_it(fabric: SecuredFabric, agent: ScriptedAgent) -> None:
    with fabric.client("operator-alice") as alice, fabric.client("admin") as admin, fabric.client("viewer") as viewer:
        newest = max((event.number for event in viewer.read_events()), default=0)
        job = alice.start_job(pb.StartJobRequest(workers=1, name="watched", slots=2))
        admin.stop_job(job.id)
        admin.drain_switch()
        admin.drain_switch(drained=False)
        admin.set_loss(ports=[1], ingress=0.5)
        admin.set_loss(ports=[1], ingress=0)
        with pytest.raises(QuotaExceeded):
            alice.start_job(pb.StartJobRequest(workers=60))
        for _ in range(2):
            with pytest.raises(PermissionDenied):
                viewer.drain_switch()
        found = [(event.kind, event.actor.partition(" at ")[0]) for event in viewer.read_events(after=newest)]
    alices, admins = "O=vision,OU=operator,CN=alice", "OU=admin,CN=admin"
    wanted = [("job-started", alices), ("job-ready", alices), ("job-stopped", admins)]
    wanted += [("switch-drained", admins), ("switch-undrained", admins), ("loss-set", admins), ("loss-set", admins)]
    wanted += [("job-refused", alices)]
    assert [one for one in found if one[0] in {kind for kind, _ in wanted}] == wanted
    refused = [one for one in found if one[0] == "access-refused"]
    assert refused in (
        [],
        [("access-refused", "OU=viewer,CN=viewer")],
    )  # once a minute; another test may have been first


def test_a_changed_configuration_stands_in_the_event_log(switch_process: SwitchProcess, tmp_path: Path) -> None:
    def changes(client: ControllerClient) -> list[tuple[str, bool]]:
        found = [event for event in client.read_events() if event.kind == "configuration-changed"]
        return [(event.detail, bool(event.actor)) for event in found]

    with running_controller(tmp_path, configuration(switch_process)) as (_, client):
        assert changes(client) == []
    with running_controller(tmp_path, TENANTS + configuration(switch_process)) as (process, client):
        assert changes(client) == [("tenants", True)]
        process.stop()
        process.config.write_text(process.config.read_text() + "small_job = 3\n")
        with process.start() as again:
            assert changes(again) == [("tenants", True), ("switches", True)]


def test_over_loopback_without_tls_everybody_is_an_administrator(switch_process: SwitchProcess, tmp_path: Path) -> None:
    process = ControllerProcess(tmp_path, configuration(switch_process))
    try:
        with process.start() as client, ScriptedAgent(process.listen, "whoever") as agent:
            assert agent.messages("welcome")
            client.drain_switch(drained=False)
            with pytest.raises(JobNotFound):
                client.stop_job(3)
            (event,) = [event for event in client.read_events() if event.kind == "switch-undrained"]
            assert " at ipv4:127.0.0.1:" in event.actor  # the user of this program, as it says itself
        said = f"listening on {process.listen} without TLS: every user of this machine can command this process"
        assert said in process.log.read_text()
    finally:
        process.stop()
