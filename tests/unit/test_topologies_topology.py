"""Topology files: allowed contents, and the errors for other contents."""

from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path

import pytest
import yaml

from switchml.common.errors import ConfigurationError, TopologyFileError
from switchml.common.switch_trees import ParentLink
from switchml.controller.config import load_config
from switchml.dataplane.targets import BMV2, SOFT
from switchml.launch.kinds import kind_of
from switchml.launch.settings import FABRIC_OPTIONS
from switchml.topologies import topology
from switchml.topologies.controller_file import controller_file
from switchml.topologies.topology import Host, Switch, Topology, load, racks, single_switch

TWO_HOSTS = """\
name: two-hosts
switches:
  - {name: s1, target: bmv2, mac: "02:00:00:00:00:FE", ipv4: 10.0.0.254}
hosts:
  - {name: h1, mac: "02:00:00:00:00:01", ipv4: 10.0.0.1/24, switch: s1, port: 1}
  - {name: h2, mac: "02:00:00:00:00:02", ipv4: 10.1.0.2/16, switch: s1, port: 510}
"""


def load_text(tmp_path: Path, text: str) -> Topology:
    path = tmp_path / "topology.yaml"
    path.write_text(text)
    return load(path)


def test_a_file_becomes_a_topology(tmp_path: Path) -> None:
    assert load_text(tmp_path, TWO_HOSTS) == Topology(
        name="two-hosts",
        mtu=9000,
        switches=(Switch("s1", "02:00:00:00:00:fe", IPv4Address("10.0.0.254"), BMV2),),
        hosts=(
            Host("h1", "02:00:00:00:00:01", IPv4Interface("10.0.0.1/24"), "s1", 1),
            Host("h2", "02:00:00:00:00:02", IPv4Interface("10.1.0.2/16"), "s1", 510),
        ),
    )


def test_the_packaged_file_is_what_is_made_for_eight_workers() -> None:
    assert load(topology.PACKAGED) == single_switch(8)


def test_the_example_in_the_documentation_is_one(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "guides" / "topologies.md"
    example = page.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    assert len(load_text(tmp_path, example).hosts) == 2


@pytest.mark.parametrize("hosts", [1, 64])
def test_what_is_made_can_be_written_and_read(hosts: int) -> None:
    made = single_switch(hosts, BMV2)
    assert len(made.hosts) == hosts
    assert Topology.from_dict(made.as_dict()) == made


def test_a_host_with_an_rdma_card_can_be_written_and_read(tmp_path: Path) -> None:
    read = load_text(tmp_path, TWO_HOSTS.replace("port: 510", "port: 2, transport: rdma, device: mlx5_0/2"))
    assert [(host.transport, host.device) for host in read.hosts] == [("udp", ""), ("rdma", "mlx5_0/2")]
    assert ["device" in host for host in read.as_dict()["hosts"]] == [False, True]
    assert Topology.from_dict(read.as_dict()) == read


@pytest.mark.parametrize("hosts", [0, 65])
def test_no_more_hosts_than_a_job_has_workers(hosts: int) -> None:
    with pytest.raises(TopologyFileError, match=f"{hosts} hosts; 1 to 64"):
        single_switch(hosts)


def test_a_part_and_another_target(tmp_path: Path) -> None:
    made = load_text(tmp_path, TWO_HOSTS)
    assert [host.name for host in made.first_hosts(1).hosts] == ["h1"]
    assert made.on(SOFT).switch.target is SOFT
    with pytest.raises(TopologyFileError, match="has 2 hosts, not 3"):
        made.first_hosts(3)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("name: two-hosts\n", "", "the file: name is missing"),
        ("name: two-hosts", "name: two hosts", "1 to 64 of"),
        ("name: two-hosts", "name: t\nspeed: 7", "the file: unknown key speed; known keys are name, mtu, switches,"),
        ("name: two-hosts", "name: t\nmtu: 10000", "mtu is 10000: must be a whole number from 576 to 9216"),
        ("name: two-hosts", "name: t\nmtu: true", "mtu is True: must be a whole number"),
        (
            "target: bmv2",
            "target: magic",
            r"switches\[0\] \(s1\): target is 'magic': must be one of soft, bmv2, tofino",
        ),
        ("ipv4: 10.0.0.254", "ipv4: 10.0.0.254/24", r"switches\[0\] \(s1\): ipv4"),
        ("ipv4: 10.0.0.254", "ipv4: 224.0.0.1", "not an address that a host can have"),
        ('mac: "02:00:00:00:00:01"', "mac: 12:00:00:00:00:01", r"hosts\[0\] \(h1\): mac is \d+: must be text; put"),
        ('"02:00:00:00:00:01"', '"02-00-00-00-00-01"', "not a MAC address like 02:00:00:00:00:01"),
        ('"02:00:00:00:00:01"', '"03:00:00:00:00:01"', "it is a group address"),
        ('"02:00:00:00:00:01"', '"02:00:00:00:00:02"', "MAC 02:00:00:00:00:02 is given twice"),
        ("10.0.0.1/24", "10.0.0.254/24", "IPv4 address 10.0.0.254 is given twice"),
        ("10.0.0.1/24", "10.0.0.300/24", r"hosts\[0\] \(h1\): ipv4"),
        ("port: 510", "port: 511", r"hosts\[1\] \(h2\): port is 511: must be a whole number from 1 to 510"),
        ("port: 510", "port: 1", "switch port s1 port 1 is given twice"),
        ("name: h2", "name: h1", "name h1 is given twice"),
        ("name: h2", "name: a-long-name", "1 to 8 of"),
        ("switch: s1, port: 510", "switch: s2, port: 2", "host h2: there is no switch 's2', only s1"),
        ("switch: s1, port: 510", "port: 2", r"hosts\[1\] \(h2\): switch is missing"),
        ("switch: s1, port: 510", "switch: s1, port: 2, mtu: 1500", r"hosts\[1\] \(h2\): unknown key mtu"),
        ("port: 510", "port: 2, transport: dpdk", r"hosts\[1\] \(h2\): transport is 'dpdk': must be one of udp, rdma"),
        ("port: 510", "port: 2, transport: rdma", "host h2: transport rdma needs a device"),
        ("port: 510", "port: 2, device: mlx5_0", "host h2: device mlx5_0 is for transport rdma"),
        (
            "port: 510",
            "port: 2, transport: rdma, device: mlx5_0/0",
            r"hosts\[1\] \(h2\): device is 'mlx5_0/0': must be",
        ),
        ("port: 510", "port: 2, transport: rdma, device: 5", "device is 5: must be text"),
        ("hosts:\n", "hosts: 3\nothers:\n", "unknown key others"),
    ],
)
def test_what_may_not_stand_there_is_named(old: str, new: str, words: str, tmp_path: Path) -> None:
    assert old in TWO_HOSTS
    with pytest.raises(TopologyFileError, match=words) as raised:
        load_text(tmp_path, TWO_HOSTS.replace(old, new))
    assert str(tmp_path / "topology.yaml") in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a mapping"),
        ("- 1\n", "is not a mapping"),
        ("name: t\n", "switches is missing"),
        ("name: t\nswitches: 3\nhosts: []\n", "switches is not a list"),
        ("name: t\nswitches: [3]\nhosts: []\n", r"switches\[0\] is not a mapping"),
        ("name: t\nswitches: []\nhosts: []\n", "no switches"),
        (TWO_HOSTS.split("hosts:")[0] + "hosts: []\n", "no hosts"),
        ("{", "is not YAML"),
        ("!!python/object/apply:os.system [true]", "is not YAML"),
    ],
)
def test_what_is_no_topology_file(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(TopologyFileError, match=words):
        load_text(tmp_path, text)


def leaf(parent: str, name: str = "s2", number: int = 1) -> str:
    return f'  - {{name: {name}, mac: "02:00:00:00:01:{number:02x}", ipv4: 10.0.1.{number}, parent: {parent}}}\n'


def with_switches(*tables: str) -> str:
    return TWO_HOSTS.replace("hosts:", "".join(tables) + "hosts:")


def test_switches_below_another_one(tmp_path: Path) -> None:
    link = ParentLink("s1", 2, 9)
    found = load_text(tmp_path, with_switches(leaf("{switch: s1, port: 2, uplink: 9}")))
    assert found.links == {"s2": link}
    assert [found.ports(name) for name in ("s1", "s2")] == [[1, 2, 510], [9]]
    assert Topology.from_dict(found.as_dict()) == found
    with pytest.raises(TopologyFileError, match="has 2 switches; this needs exactly one"):
        _ = found.switch


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ([leaf("{switch: s9, port: 2, uplink: 9}")], "switch 's2': its parent 's9' is not one of s1, s2"),
        (
            [leaf("{switch: s3, port: 2, uplink: 9}"), leaf("{switch: s2, port: 2, uplink: 9}", "s3", 2)],
            "switches are each other's parents: s2 -> s3 -> s2",
        ),
        (
            [leaf("{switch: s1, port: 2, uplink: 9}"), leaf("{switch: s1, port: 2, uplink: 9}", "s3", 2)],
            "port 2 of switch s1 leads to switch s2 and to switch s3",
        ),
        (
            [leaf("{switch: s1, port: 1, uplink: 9}")],
            "port 1 of switch s1 leads to host h1 and to switch s2; a port has one link",
        ),
        (
            [leaf(f"{{switch: s{n}, port: 2, uplink: 9}}", f"s{n + 1}", n) for n in range(1, 9)],
            "the tree s9 -> s8 -> .* -> s1 has 9 levels of switches, and 8 are configured",
        ),
        ([leaf("{switch: s1, port: 2}")], r"switches\[1\] \(s2\): parent: uplink is missing"),
        ([leaf("{switch: s1, port: 0, uplink: 1}")], "port is 0: must be a whole number from 1 to 510"),
        ([leaf("[{switch: s1}, {switch: s3}]")], "2 parents are given, and at most one is possible"),
        ([leaf("s1")], r"switches\[1\] \(s2\): parent is not a mapping"),
    ],
)
def test_parents_that_are_refused(tables: list[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(TopologyFileError, match=words):
        load_text(tmp_path, with_switches(*tables))


def test_racks() -> None:
    made = racks(3, 8)
    assert Topology.from_dict(made.as_dict()) == made
    assert [switch.name for switch in made.switches] == ["spine", "leaf1", "leaf2", "leaf3"]
    assert [[host.name for host in made.hosts if host.switch == f"leaf{rack}"] for rack in (1, 2, 3)] == [
        ["h1", "h2"],
        ["h3", "h4", "h5"],
        ["h6", "h7", "h8"],
    ]
    assert [made.ports(name) for name in ("spine", "leaf1")] == [[1, 2, 3], [1, 2, 3]]
    for count, hosts, words in ((1, 8, "1 racks; 2 to 32"), (3, 2, "2 hosts in 3 racks; 3 to 64"), (2, 65, "65 hosts")):
        with pytest.raises(TopologyFileError, match=words):
            racks(count, hosts)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TopologyFileError, match=r"none\.yaml cannot be read: No such file"):
        load(tmp_path / "none.yaml")


TOFINO = """
name: rack
switches:
  - name: t1
    target: tofino
    mac: "02:00:00:00:00:fe"
    ipv4: 10.0.0.254
    bfrt: 10.1.0.1:50052
    ports:
      - {number: 1, name: 1/0, speed: 100G, fec: rs, autonegotiation: "off"}
      - {number: 2, name: 2/0, speed: 100G}
      - {name: 32/0, speed: 100G, role: recirculation}
hosts:
  - {name: h1, mac: "02:00:00:00:00:01", ipv4: 10.0.0.1/24, switch: t1, port: 1}
  - {name: h2, mac: "02:00:00:00:00:02", ipv4: 10.0.0.2/24, switch: t1, port: 2}
"""


def test_a_tofino_becomes_the_controllers_configuration(tmp_path: Path) -> None:
    made = Topology.from_dict(yaml.safe_load(TOFINO))
    assert Topology.from_dict(made.as_dict()) == made
    path = tmp_path / "controller.toml"
    path.write_text(controller_file(made))
    (switch,) = load_config(path).switches
    assert (switch.name, switch.target.name, switch.bfrt) == ("t1", "tofino", "10.1.0.1:50052")
    assert switch.program == "switchml"
    assert switch.tls == "off"  # bf_switchd has none
    assert (switch.address, switch.mac) == ("10.0.0.254", "02:00:00:00:00:fe")
    assert switch.ports == made.switch.ports
    assert (switch.ports[0].fec, switch.ports[0].autonegotiation, switch.ports[2].role) == (
        "rs",
        "off",
        "recirculation",
    )
    with pytest.raises(TopologyFileError, match="`switchml-ctl up --topology FILE` starts it"):
        controller_file(single_switch(2))


def test_a_tofino_is_not_laid_out(tmp_path: Path) -> None:
    path = tmp_path / "rack.yaml"
    path.write_text(TOFINO)
    with pytest.raises(ConfigurationError, match="topology rack is a Tofino, which this command does not start"):
        kind_of(FABRIC_OPTIONS | {"topology": str(path)})
    laid_out = kind_of(FABRIC_OPTIONS | {"topology": str(path), "switch": "soft"})
    assert laid_out.options()["switch"] == "soft"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("    bfrt: 10.1.0.1:50052\n", "", r"switches\[0\] \(t1\): bfrt is missing"),
        ("number: 1,", "number: 3,", "host h1: switch t1 has no port 1"),
        ("number: 1,", "number: 600,", r"ports\[0\] \(1/0\): number is 600: must be a whole number from 1 to 510"),
        ("fec: rs", "fec: both", r"ports\[0\] \(1/0\): port '1/0': fec is 'both'"),
        ("speed: 100G}", "lanes: 4}", r"ports\[1\] \(2/0\): unknown key lanes"),
        ("tofino", "bmv2", "unknown key bfrt, ports"),
    ],
)
def test_what_is_refused_of_a_tofino(old: str, new: str, words: str) -> None:
    assert old in TOFINO
    with pytest.raises(TopologyFileError, match=words):
        Topology.from_dict(yaml.safe_load(TOFINO.replace(old, new, 1)))
