from pathlib import Path

import pytest

from controller.config import load_config
from controller.errors import ConfigError

SWITCH = """
[[switches]]
name = "s1"
target = "soft"
p4runtime = "127.0.0.1:9559"
address = "10.0.0.1"
"""


def load(tmp_path: Path, text: str):
    path = tmp_path / "controller.toml"
    path.write_text(text)
    return load_config(path)


def test_defaults(tmp_path: Path):
    config = load(tmp_path, SWITCH)
    (switch,) = config.switches
    assert (switch.device_id, switch.udp_port, switch.pool, switch.values) == (1, 0xBEE0, 512, 256)
    (bmv2,) = load(tmp_path, SWITCH.replace("soft", "bmv2")).switches
    assert (bmv2.pool, bmv2.values) == (32, 64)
    assert load(tmp_path, "").switches == ()


def test_everything_given(tmp_path: Path):
    text = '[controller]\nlisten = "0.0.0.0:1"\nstore = "/x/y"\n' + SWITCH
    text += 'device_id = 7\nudp_port = 5\nmac = "02:00:00:00:00:01"\n'
    text += "values_per_packet = 64\nslots = 100\ndefault_pool = 8\n"
    config = load(tmp_path, text)
    assert (config.listen, config.store) == ("0.0.0.0:1", Path("/x/y"))
    assert (config.switches[0].pool, config.switches[0].slots, config.switches[0].device_id) == (8, 100, 7)


def test_unix_sockets_instead_of_ports(tmp_path: Path):
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
        ("[controller]\nport = 3", "unknown key 'port'; known are listen, store"),
        ('[[switches]]\nname = "s"', "target, p4runtime, address missing"),
        (SWITCH + "slots = true", "slots is True and must be of type int"),
        (SWITCH + "slots = 1", "slots is 1 and must be 2 to 32768"),
        (SWITCH + "values_per_packet = 4096", "must be 0 to 2048"),
        (SWITCH + "udp_port = 0", "udp_port is 0"),
        (SWITCH + "default_pool = 3", "power of two"),
        (SWITCH + 'mac = "nothing"', "not a MAC address"),
        (SWITCH + 'mac = "zz:00:00:00:00:00"', "mac"),
        (SWITCH.replace("10.0.0.1", "0.0.0.0"), "not an IPv4 address that packets can be sent to"),
        (SWITCH.replace("10.0.0.1", "::1"), "not an IPv4 address"),
        (SWITCH.replace("soft", "magic"), "none of soft, bmv2"),
        (SWITCH.replace('"s1"', '"a b"'), "name must be"),
        (SWITCH + SWITCH, "2 switches have the name 's1'"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, words: str):
    with pytest.raises(ConfigError, match=words) as caught:
        load(tmp_path, text)
    assert str(tmp_path / "controller.toml") in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_config(tmp_path / "nothing")
