"""The layout of a fabric that `up` plans from its options, before it starts anything."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from switchml.common.errors import ConfigurationError, NamespaceError, ProgramNotFoundError, TopologyFileError
from switchml.dataplane.targets import TARGETS
from switchml.launch.kinds import Embedded, FabricKind, Faults, Namespaced, kind_of, namespaced
from switchml.launch.settings import FABRIC_OPTIONS
from switchml.topologies import topology
from switchml.topologies.namespaces import Namespaces, switch_interface

NOBODY = 65534


def chosen(**options: Any) -> FabricKind:
    """Return the fabric that these options describe."""
    return kind_of(FABRIC_OPTIONS | options)


def test_the_embedded_fabric_has_the_soft_switch_s_defaults() -> None:
    shared = Embedded(agents=3, transport="shm", values=2048, slots=8192)
    assert chosen(agents=3) == shared
    assert chosen(agents=3, transport="udp") == replace(shared, transport="udp")
    assert chosen(agents=3, drop=0.1, seed=0) == replace(shared, faults=Faults(drop=0.1, seed=0))


def test_a_fabric_lists_the_options_of_all_kinds() -> None:
    embedded = FABRIC_OPTIONS | {"agents": 3, "transport": "shm", "values": 2048, "slots": 8192, "flip": 0.5}
    assert chosen(agents=3, flip=0.5).options() == embedded
    hosts = {"switch": "soft", "workers": 4, "racks": 2, "transport": "udp", "values": 256, "slots": 8192}
    assert chosen(switch="soft", workers=4, racks=2).options() == FABRIC_OPTIONS | hosts
    leaf = {"leaf": "h1", "address": "10.0.0.1", "controller": "10.0.0.9:7600", "certificates": "/certs"}
    assert chosen(**leaf).options() == FABRIC_OPTIONS | leaf | {"transport": "shm", "values": 256, "slots": 8192}


def test_the_embedded_fabric_sends_no_results_by_ip_multicast(tmp_path: Path) -> None:
    """Results are not sent by multicast, because every user of the machine could join the group and read them."""
    ready = {"grpc": "unix:/run/p4runtime.sock", "ports": {"1": {"address": "127.0.0.1", "udp_port": 48864}}}
    table = chosen(agents=3, transport="udp").layout(tmp_path, tmp_path).switch_table("switch-0", ready)
    assert not [name for name in table if "multicast" in name]


@pytest.mark.parametrize(("target", "values", "slots"), [("soft", 256, 8192), ("bmv2", 64, 2048)])
def test_each_target_has_its_own_defaults(target: str, values: int, slots: int) -> None:
    expected = Namespaced(topology=topology.single_switch(4, TARGETS[target]), values=values, slots=slots)
    assert chosen(switch=target, workers=4) == expected


def test_the_target_may_stand_in_the_file_and_the_option_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(topology.PACKAGED.read_text().replace("target: soft", "target: bmv2"))
    from_file = chosen(topology=str(path)).options()
    assert (from_file["switch"], from_file["values"], from_file["workers"]) == ("bmv2", 64, 8)
    both = chosen(topology=str(path), switch="soft", workers=3).options()
    assert (both["switch"], both["values"], both["workers"]) == ("soft", 256, 3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workers": 4}, "needs a switch"),
        ({"switch": "soft", "agents": 2}, "give --workers, not --agents"),
        ({"threads": 2}, "over UDP"),
        ({"switch": "soft", "threads": 2}, "over UDP"),
        ({"switch": "bmv2", "values": 128}, "compiled for 64 and 256"),
        ({"switch": "bmv2", "values": 256, "program": "switchml_floats"}, "compiled for 64$"),
        ({"switch": "soft", "program": "switchml_floats"}, "omit it, or give --switch bmv2"),
        ({"switch": "bmv2", "slots": 512}, "the P4 program for bmv2 has 2048"),
        ({"switch": "bmv2", "drop": 0.1}, "switchml-ctl switch loss"),
        ({"racks": 3, "agents": 2}, "2 agents for 3 racks"),
        ({"leaf": "h1", "address": "10.0.0.1"}, "needs the fabric's controller"),
        ({"leaf": "h1", "controller": "10.0.0.9:7600"}, "needs the IPv4 address"),
        ({"leaf": "h1", "controller": "10.0.0.9:7600", "address": "10.0.0.1"}, "needs the certificates"),
        ({"leaf": "h1", "racks": 2}, "of the options of other fabrics only"),
        ({"racks": 2, "switch": "soft", "topology": "t.yaml"}, "omit --racks"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        chosen(**options)


def test_targets_of_a_tree_can_differ(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    content = topology.racks(2, 4).as_dict()
    content["switches"][0]["target"] = "bmv2"
    path.write_text(yaml.safe_dump(content))
    mixed = chosen(topology=str(path)).options()
    assert (mixed["switch"], mixed["values"], mixed["slots"]) == ("", 64, 8192)
    with pytest.raises(ConfigurationError, match="compiled for 64 and 256"):
        chosen(topology=str(path), values=128)


def test_racks_have_a_switch_each() -> None:
    assert chosen(racks=2, switch="soft").options()["workers"] == 8
    assert chosen(racks=2, switch="bmv2", workers=4).values == 64


def test_racks_of_the_embedded_fabric(tmp_path: Path) -> None:
    assert chosen(racks=2) == Embedded(racks=2, agents=2, transport="shm")
    layout = chosen(racks=2, agents=3).layout(tmp_path, tmp_path)
    shared = [[part for part in place.command if part.startswith("2=")] for place in layout.switches()]
    assert shared == [[], [f"2={tmp_path}/switch-1.sock"], [f"2={tmp_path}/switch-2.sock"]]
    sockets = [place.command[place.command.index("--switch-socket") + 1] for place in layout.agents()]
    assert sockets == [f"{tmp_path}/switch-{rack}.sock" for rack in (1, 1, 2)]
    over_udp = chosen(racks=2, transport="udp").layout(tmp_path, tmp_path)
    assert not [part for place in over_udp.switches() for part in place.command if part == "--shm-port"]
    assert [place.name for place in layout.switches()] == ["spine", "leaf1", "leaf2"]
    ready = {"grpc": "unix:/run/s.sock", "ports": {"1": {"address": "127.0.0.1", "udp_port": 48864}}}
    assert "parent" not in layout.switch_table("spine", ready)
    assert layout.switch_table("leaf2", ready)["parent"] == {"switch": "spine", "port": 1, "uplink": 1}
    where = [place.command[place.command.index("--switch") + 1] for place in layout.agents()]
    assert where == ["leaf1", "leaf1", "leaf2"]


def test_a_host_with_an_rdma_card_has_an_agent_that_uses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaced, "require_privileges", lambda: None)
    path = tmp_path / "t.yaml"
    content = topology.single_switch(2).as_dict()
    content["hosts"][1] |= {"transport": "rdma", "device": "mlx5_0"}
    path.write_text(yaml.safe_dump(content))
    over_udp, over_rdma = (place.command for place in chosen(topology=str(path)).layout(tmp_path, tmp_path).agents())
    assert "--transport" not in over_udp
    assert over_rdma[-4:] == ["--transport", "rdma", "--device", "mlx5_0"]


def test_leaf_is_a_switch_and_an_agent_of_one_host(tmp_path: Path) -> None:
    given = {"leaf": "h1", "address": "10.0.0.1", "controller": "10.0.0.9:7600"}
    layout = chosen(**given, certificates="/certs").layout(tmp_path, tmp_path)
    [switch], [agent] = layout.switches(), layout.agents()
    assert (switch.name, agent.name, layout.controller) == ("switch-h1", "h1", "10.0.0.9:7600")
    text = " ".join(switch.command)
    assert f"--grpc 10.0.0.1:9559 --udp-port 1=10.0.0.1:48864 --shm-port 2={tmp_path}/switch.sock" in text
    assert text.endswith("--tls /certs/switch-h1")
    text = " ".join(agent.command)
    assert f"--switch h1 --transport shm --switch-socket {tmp_path}/switch.sock --tls /certs/agent-h1" in text
    ready = {"grpc": "10.0.0.1:9559", "ports": {"1": {"address": "10.0.0.1", "udp_port": 48864}}}
    assert layout.switch_table(switch.name, ready)["name"] == "h1"
    insecure = chosen(**given, insecure=True).layout(tmp_path, tmp_path)
    assert insecure.agents()[0].command[-1] == insecure.switches()[0].command[-1] == "--insecure"


def test_packets_must_fit_into_the_links(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(topology.PACKAGED.read_text().replace("mtu: 9000", "mtu: 1500"))
    fits = 360  # 28 bytes of IPv4 and UDP, 32 of SwitchML's header, 4 for each value
    assert chosen(topology=str(path), values=fits).values == fits
    with pytest.raises(TopologyFileError, match="1504 bytes, but the MTU of topology single-switch is 1500"):
        chosen(topology=str(path), values=361)


def test_namespaces_belong_to_a_run_directory(tmp_path: Path) -> None:
    here, there = Namespaces(tmp_path / "a"), Namespaces(tmp_path / "b")
    assert here.name("h1") == Namespaces(tmp_path / "b" / ".." / "a").name("h1")
    assert here.name("h1") != there.name("h1")
    assert here.command("h1", ["true"]) == ["ip", "netns", "exec", here.name("h1"), "true"]
    assert here.existing() == here.remove() == []


def test_the_longest_interface_name_is_allowed() -> None:
    assert len(switch_interface("s" * 8, 510)) == 15  # IFNAMSIZ without the terminating zero: 15


def test_without_bmv2_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ip = shutil.which("ip")
    if ip is None:
        pytest.skip("iproute2 is not installed")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ip").symlink_to(ip)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    try:
        chosen(switch="soft", workers=2).layout(tmp_path, tmp_path)
    except NamespaceError as error:
        pytest.skip(str(error))
    with pytest.raises(ProgramNotFoundError, match=r"simple_switch_grpc.*p4lang/behavioral-model.*--switch soft"):
        chosen(switch="bmv2", workers=2).layout(tmp_path, tmp_path)


def test_without_ip_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NamespaceError, match="apt-get install iproute2"):
        chosen(switch="soft", workers=2).layout(tmp_path, tmp_path)


def test_without_privileges_they_are_named() -> None:
    # Run as root, the program is asked a second time as user 65534, which cannot read the modules everywhere.
    ask = "require_privileges(); "
    drop = f"import os; os.getuid() or (require_privileges(), os.setuid({NOBODY})); "
    path = [place for place in sys.path if place]
    ask = f"from switchml.topologies.namespaces import require_privileges; {drop}{ask}"
    code = f"import sys; sys.path[:] = {path!r}; {ask}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.returncode != 0
    assert "NamespaceError" in done.stderr
    if shutil.which("ip") is not None:
        assert "CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN" in done.stderr
        assert "sudo -E" in done.stderr
