"""Topology files: what may stand in them, and how what may not is named."""

from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path

import pytest

from topologies import topology
from topologies.errors import TopologyFileError
from topologies.topology import Host, Switch, Topology, load, single_switch

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
        switches=(Switch("s1", "02:00:00:00:00:fe", IPv4Address("10.0.0.254"), "bmv2"),),
        hosts=(
            Host("h1", "02:00:00:00:00:01", IPv4Interface("10.0.0.1/24"), "s1", 1),
            Host("h2", "02:00:00:00:00:02", IPv4Interface("10.1.0.2/16"), "s1", 510),
        ),
    )


def test_the_packaged_file_is_what_is_made_for_eight_workers() -> None:
    assert load(topology.PACKAGED) == single_switch(8)


def test_the_example_in_the_documentation_is_one(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "topologies.md"
    example = page.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    assert len(load_text(tmp_path, example).hosts) == 2


@pytest.mark.parametrize("hosts", [1, 64])
def test_what_is_made_can_be_written_and_read(hosts: int) -> None:
    made = single_switch(hosts, "bmv2")
    assert len(made.hosts) == hosts
    assert Topology.from_dict(made.as_dict()) == made


@pytest.mark.parametrize("hosts", [0, 65])
def test_no_more_hosts_than_a_job_has_workers(hosts: int) -> None:
    with pytest.raises(TopologyFileError, match=f"{hosts} hosts; 1 to 64"):
        single_switch(hosts)


def test_a_part_and_another_target(tmp_path: Path) -> None:
    made = load_text(tmp_path, TWO_HOSTS)
    assert [host.name for host in made.first_hosts(1).hosts] == ["h1"]
    assert made.on("soft").switch.target == "soft"
    with pytest.raises(TopologyFileError, match="has 2 hosts, not 3"):
        made.first_hosts(3)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("name: two-hosts\n", "", "the file: name is missing"),
        ("name: two-hosts", "name: two hosts", "1 to 64 of"),
        ("name: two-hosts", "name: t\nspeed: 7", "the file: unknown key speed; known are name, mtu, switches, hosts"),
        ("name: two-hosts", "name: t\nmtu: 10000", "mtu is 10000: a whole number from 576 to 9216"),
        ("name: two-hosts", "name: t\nmtu: true", "mtu is True: a whole number"),
        ("target: bmv2", "target: tofino", r"switches\[0\] \(s1\): target is 'tofino': it must be one of soft, bmv2"),
        ("ipv4: 10.0.0.254", "ipv4: 10.0.0.254/24", r"switches\[0\] \(s1\): ipv4"),
        ("ipv4: 10.0.0.254", "ipv4: 224.0.0.1", "no address that a host can have"),
        ('mac: "02:00:00:00:00:01"', "mac: 12:00:00:00:00:01", r"hosts\[0\] \(h1\): mac is \d+: a text is needed; put"),
        ('"02:00:00:00:00:01"', '"02-00-00-00-00-01"', "no MAC address like 02:00:00:00:00:01"),
        ('"02:00:00:00:00:01"', '"03:00:00:00:00:01"', "it is a group address"),
        ('"02:00:00:00:00:01"', '"02:00:00:00:00:02"', "MAC 02:00:00:00:00:02 is given twice"),
        ("10.0.0.1/24", "10.0.0.254/24", "IPv4 address 10.0.0.254 is given twice"),
        ("10.0.0.1/24", "10.0.0.300/24", r"hosts\[0\] \(h1\): ipv4"),
        ("port: 510", "port: 511", r"hosts\[1\] \(h2\): port is 511: a whole number from 1 to 510"),
        ("port: 510", "port: 1", "switch port s1 port 1 is given twice"),
        ("name: h2", "name: h1", "name h1 is given twice"),
        ("name: h2", "name: a-long-name", "1 to 8 of"),
        ("switch: s1, port: 510", "switch: s2, port: 2", "host h2: there is no switch 's2', only s1"),
        ("switch: s1, port: 510", "port: 2", r"hosts\[1\] \(h2\): switch is missing"),
        ("switch: s1, port: 510", "switch: s1, port: 2, mtu: 1500", r"hosts\[1\] \(h2\): unknown key mtu"),
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
        ("name: t\nswitches: 3\nhosts: []\n", "switches is no list"),
        ("name: t\nswitches: [3]\nhosts: []\n", r"switches\[0\] is not a mapping"),
        ("name: t\nswitches: []\nhosts: []\n", "exactly one"),
        (TWO_HOSTS.split("hosts:")[0] + "hosts: []\n", "no hosts"),
        ("{", "is not YAML"),
        ("!!python/object/apply:os.system [true]", "is not YAML"),
    ],
)
def test_what_is_no_topology_file(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(TopologyFileError, match=words):
        load_text(tmp_path, text)


def test_two_switches_are_not_there_yet(tmp_path: Path) -> None:
    second = '  - {name: s2, mac: "02:00:00:00:01:fe", ipv4: 10.0.1.254}\nhosts:'
    with pytest.raises(TopologyFileError, match="2 switches; a topology has exactly one so far"):
        load_text(tmp_path, TWO_HOSTS.replace("hosts:", second))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TopologyFileError, match=r"none\.yaml cannot be read: No such file"):
        load(tmp_path / "none.yaml")
