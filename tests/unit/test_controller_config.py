from pathlib import Path

import pytest

from switchml.common.switch_trees import ParentLink
from switchml.controller.config import ControllerConfig, load_config
from switchml.controller.errors import ConfigError

SWITCH = """
[[switches]]
name = "s1"
target = "soft"
p4runtime = "127.0.0.1:9559"
address = "10.0.0.1"
"""


TOFINO = """
[[switches]]
name = "t1"
target = "tofino"
bfrt = "10.1.0.1:50052"
address = "10.0.0.254"
"""
PORT = """
[[switches.ports]]
number = 1
name = "1/0"
speed = "100G"
"""


def load(tmp_path: Path, text: str) -> ControllerConfig:
    path = tmp_path / "controller.toml"
    path.write_text(text)
    return load_config(path)


def test_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, SWITCH)
    (switch,) = config.switches
    assert (switch.device, switch.udp_port, switch.pool(8), switch.values) == (1, 0xBEE0, 512, 256)
    (bmv2,) = load(tmp_path, SWITCH.replace("soft", "bmv2")).switches
    assert (bmv2.pool(8), bmv2.values) == (32, 64)
    assert load(tmp_path, "").switches == ()


def test_everything_given(tmp_path: Path) -> None:
    text = '[controller]\nlisten = "0.0.0.0:1"\nstore = "/x/y"\n' + SWITCH
    text += 'device_id = 7\nudp_port = 5\nmac = "02:00:00:00:00:01"\n'
    text += "values_per_packet = 64\nslots = 100\ndefault_pool = 8\nsmall_pool = 4\nsmall_job = 2\n"
    config = load(tmp_path, text)
    assert (config.listen, config.store) == ("0.0.0.0:1", Path("/x/y"))
    assert (config.switches[0].pool(8), config.switches[0].slots, config.switches[0].device) == (8, 100, 7)
    assert [config.switches[0].pool(workers) for workers in (1, 2, 3)] == [4, 4, 8]


def test_shared_agents(tmp_path: Path) -> None:
    assert load(tmp_path, SWITCH).shared_agents == ()
    assert load(tmp_path, '[agents]\nshared = ["host-1", "host-2"]\n').shared_agents == ("host-1", "host-2")
    assert load(tmp_path, '[agents]\nshared = ["*"]\n').shared_agents == ("*",)
    for value in ('"host-1"', "[1]", '[""]', '["a b"]'):
        with pytest.raises(ConfigError, match=r"\[agents\]: shared is .* must be an array of names of agents"):
            load(tmp_path, f"[agents]\nshared = {value}\n")
    with pytest.raises(ConfigError, match=r"\[agents\]: unknown key owner; known is shared"):
        load(tmp_path, '[agents]\nowner = "vision"\n')
    with pytest.raises(ConfigError, match=r"agents must be a table"):
        load(tmp_path, "agents = 1\n")


def test_a_tofino(tmp_path: Path) -> None:
    returns = PORT.replace("number = 1", 'role = "recirculation"').replace("1/0", "32/0")
    inside = '[[switches.ports]]\nname = "68"\nrole = "recirculation"\n'
    (switch,) = load(tmp_path, TOFINO + PORT + 'fec = "rs"\nautonegotiation = "off"\n' + returns + inside).switches
    assert (switch.control, switch.device, switch.pool(8), switch.values) == ("10.1.0.1:50052", 0, 256, 0)
    assert switch.program == "switchml"
    first, second, third = switch.ports
    assert (first.number, first.name, first.speed, first.fec, first.autonegotiation) == (1, "1/0", "100G", "rs", "off")
    assert (second.role, second.internal) == ("recirculation", False)
    assert (third.role, third.internal, third.speed) == ("recirculation", True, "")


def test_unix_sockets_instead_of_ports(tmp_path: Path) -> None:
    text = '[controller]\nlisten = "unix:/run/c.sock"\n' + SWITCH.replace("127.0.0.1:9559", "unix:/run/s1.sock")
    config = load(tmp_path, text)
    assert (config.listen, config.switches[0].p4runtime) == ("unix:/run/c.sock", "unix:/run/s1.sock")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = ", "is not TOML"),
        ("[other]", "unknown table other"),
        ("controller = 3", "must be a table"),
        ("switches = 3", "array of tables"),
        ("[controller]\nlisten = 3", "listen is 3 and must be of type str"),
        ('[controller]\nlisten = "nowhere"', "not HOST:PORT"),
        ('[controller]\nlisten = "h:99999"', "not HOST:PORT"),
        ('[controller]\nlisten = "unix:c.sock"', "no absolute path"),
        (SWITCH.replace("soft", "bmv2") + "values_per_packet = 128", "compiled for 64 and 256"),
        (SWITCH.replace("soft", "bmv2") + 'program = "other"', "those for bmv2 are switchml and switchml_floats"),
        (
            SWITCH.replace("soft", "bmv2") + 'program = "switchml_floats"\nvalues_per_packet = 256',
            "the P4 program switchml_floats for bmv2 is compiled for 64",
        ),
        ("[controller]\nport = 3", "unknown key 'port'; known are listen, store"),
        ('[[switches]]\nname = "s"', "target, address missing"),
        (SWITCH + "slots = true", "slots is True and must be of type int"),
        (SWITCH + "slots = 1", "slots is 1 and must be 2 to 32768"),
        (SWITCH + "values_per_packet = 4096", "must be 0 to 2048"),
        (SWITCH + "udp_port = 0", "udp_port is 0"),
        (SWITCH + "multicast_port = 0", "multicast_port is 0"),
        (SWITCH + "default_pool = 3", "power of two"),
        (SWITCH + "small_pool = 3", "small_pool is 3 and must be a power of two"),
        (SWITCH + 'multicast = "239.192.0.0/23"', "1024 multicast addresses or more, such as 239.192.0.0/22"),
        (SWITCH + 'multicast = "10.0.0.0/8"', "1024 multicast addresses"),
        (SWITCH + 'multicast = "239.192.0.1/22"', "multicast: 239.192.0.1/22 has host bits set"),
        (SWITCH.replace("soft", "bmv2") + 'multicast = "239.192.0.0/22"', "multicast is for target soft"),
        (SWITCH + 'mac = "nothing"', "not a MAC address"),
        (SWITCH.replace("soft", "bmv2") + "udp_ports = true", "udp_ports are those of a soft switch"),
        (SWITCH + 'mac = "zz:00:00:00:00:00"', "mac"),
        (SWITCH.replace("10.0.0.1", "0.0.0.0"), "not an IPv4 address that packets can be sent to"),
        (SWITCH.replace("10.0.0.1", "::1"), "not an IPv4 address"),
        (SWITCH.replace("soft", "magic"), "not one of soft, bmv2"),
        (SWITCH.replace('"s1"', '"a b"'), "name must be"),
        (SWITCH + SWITCH, "2 switches have the name 's1'"),
        (SWITCH.replace("p4runtime", "bfrt"), "bfrt is not an interface of target soft; set p4runtime"),
        (SWITCH.replace('p4runtime = "127.0.0.1:9559"', ""), "p4runtime missing"),
        (SWITCH + "device_id = 0", "device_id is 0 and P4Runtime counts from 1"),
        (SWITCH + PORT, "only a tofino has ports"),
        (TOFINO, "no [[switches.ports]] names a port of a host"),
        (TOFINO.replace("bfrt", "p4runtime") + PORT, "p4runtime is not an interface of target tofino; set bfrt"),
        (TOFINO.replace('"10.1.0.1:50052"', '"10.1.0.1"') + PORT, "bfrt: '10.1.0.1' is not HOST:PORT"),
        (TOFINO + PORT + PORT.replace("1/0", "2/0"), "2 ports have the number 1"),
        (TOFINO + PORT + PORT.replace("number = 1", "number = 2"), "2 ports have the name 1/0"),
        (TOFINO + PORT.replace("1/0", "eth0"), "name must be CONNECTOR/CHANNEL"),
        (TOFINO + PORT.replace("1/0", "68"), "is internal, and only a port of the front panel has a host"),
        (TOFINO + PORT.replace("number = 1", ""), "number is 0 and must be 1 to 511"),
        (TOFINO + PORT.replace("100G", "400G"), "speed is '400G' and must be 1G, 10G"),
        (TOFINO + PORT.replace('speed = "100G"', ""), "speed is '' and must be"),
        (TOFINO + PORT + 'fec = "maybe"', "fec is 'maybe' and must be none, firecode, rs"),
        (TOFINO + PORT + "autonegotiation = true", "autonegotiation is True and must be of type str"),
        (TOFINO + PORT + 'role = "uplink"', "role is 'uplink' and must be host, recirculation"),
        (TOFINO + PORT + "lanes = 4", "unknown key 'lanes'"),
        (TOFINO + "ports = 3", "ports is 3 and must be of type list"),
        (TOFINO + "ports = [3]", "must be a table"),
        (SWITCH + 'tls = "perhaps"', "tls is 'perhaps' and must be auto, on, off"),
        ("[controller]\ninsecure = 1", "insecure is 1 and must be of type bool"),
        ("tenants = 3", "tenants must be an array of tables: [[tenants]]"),
        ('[[tenants]]\nname = "a"\njobs = -1', "tenant 'a': jobs is -1 and must be 0 or more"),
        ('[[tenants]]\nname = "a"\n[[tenants]]\nname = "a"', "2 tenants have the name 'a'"),
        (
            '[[tenants]]\nname = "a"\nmembers = ["x"]\n[[tenants]]\nname = "b"\nmembers = ["x"]',
            "2 tenants have the member 'x'",
        ),
        ('[[tenants]]\nname = "a"\nmembers = [1]', "members must be texts"),
        ('[[tenants]]\nname = "*"\nmembers = ["x"]', "stands for all others and has no members"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert words in str(caught.value)
    assert str(tmp_path / "controller.toml") in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_config(tmp_path / "nothing")


LEAF = """
[[switches]]
name = "{name}"
target = "soft"
p4runtime = "127.0.0.1:9560"
address = "10.0.0.2"
mac = "02:00:00:00:00:0{port}"
parent = {{switch = "{parent}", port = {port}, uplink = 9}}
"""


def leaf(name: str = "l1", parent: str = "s1", port: int = 1) -> str:
    return LEAF.format(name=name, parent=parent, port=port)


def test_parents(tmp_path: Path) -> None:
    config = load(tmp_path, SWITCH + leaf() + leaf("l2", port=2))
    assert [one.parent for one in config.switches] == [None, ParentLink("s1", 1, 9), ParentLink("s1", 2, 9)]
    # Any number of peers can be at a UDP port, which has no MAC address.
    load(tmp_path, (SWITCH + leaf() + leaf("l2")).replace("mac", "# mac"))
    load(tmp_path, (SWITCH + leaf() + leaf("l2")).replace("mac", "udp_ports = true\nmac"))
    load(tmp_path, "[controller]\ntree_levels = 2\n" + SWITCH + leaf())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (leaf(), "switch 'l1': its parent 's1' is not one of l1"),
        (leaf("a", "b") + leaf("b", "a", 2), "switches are each other's parents: a -> b -> a"),
        (SWITCH + leaf() + leaf("l2"), "port 1 of switch s1 leads to switch l1 and to switch l2"),
        (SWITCH + leaf() + leaf("l2", "l1", 9), "port 9 of switch l1 leads to switch s1 and to switch l2"),
        ("[controller]\ntree_levels = 1\n" + SWITCH + leaf(), "the tree l1 -> s1 has 2 levels of switches, and 1 are"),
        ("[controller]\ntree_levels = 9\n", "tree_levels is 9 and must be 1 to 8"),
        (SWITCH + leaf() + "values_per_packet = 64", "switch s1 has 256 values per packet and switch l1 has 64"),
        (SWITCH + leaf(port=0), "port is 0 and must be 1 to"),
        (SWITCH + leaf().replace("uplink = 9", "uplink = 0"), "uplink is 0 and must be 1 to"),
        (SWITCH + leaf().replace("uplink = 9", "up = 9"), "parent: unknown key 'up'"),
        (SWITCH + leaf().replace(", uplink = 9", ""), "parent: uplink missing"),
        (SWITCH + 'parent = [{switch = "a"}, {switch = "b"}]', "2 parents are given for one switch"),
    ],
)
def test_parents_that_are_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(tmp_path, text)
