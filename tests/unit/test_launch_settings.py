"""Precedence and validation of settings."""

from pathlib import Path

import pytest

from switchml.common.errors import ConfigurationError
from switchml.launch.settings import FABRIC_OPTIONS, KEYS, Key, load


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text('controller = "10.0.0.1:9559"\n[fabric]\nagents = 3\nvalues = 64\n[job]\nslots = 128\n')
    return path


def test_defaults_without_anything(tmp_path: Path) -> None:
    settings = load(environment={"XDG_CONFIG_HOME": str(tmp_path), "XDG_RUNTIME_DIR": "/run/user/7"})
    assert settings.controller is None
    assert settings.run_dir == Path("/run/user/7/switchml")
    assert settings.fabric == FABRIC_OPTIONS
    assert (settings.job_slots, settings.job_switch) == (0, "")


def test_the_default_run_directory_names_the_user_without_a_runtime_directory(tmp_path: Path) -> None:
    settings = load(environment={"XDG_CONFIG_HOME": str(tmp_path)})
    assert settings.run_dir.parent == Path("/tmp")
    assert settings.run_dir.name.startswith("switchml-")


def test_options_before_environment_before_file(config_file: Path) -> None:
    environment = {"SWITCHML_FABRIC_VALUES": "128", "SWITCHML_FABRIC_AGENTS": "4", "SWITCHML_RUN_DIR": "/somewhere"}
    environment["SWITCHML_FABRIC_SEED"] = "0"
    settings = load({"fabric.agents": 5, "fabric.seed": None}, config_file=config_file, environment=environment)
    assert settings.fabric["agents"] == 5
    assert settings.fabric["values"] == 128
    assert settings.fabric["seed"] == 0
    assert settings.job_slots == 128
    assert settings.controller == "10.0.0.1:9559"
    assert settings.run_dir == Path("/somewhere")


def test_a_controller_may_be_a_unix_socket(tmp_path: Path) -> None:
    environment = {"SWITCHML_CONTROLLER": "unix:/run/c.sock", "XDG_CONFIG_HOME": str(tmp_path)}
    assert load(environment=environment).controller == "unix:/run/c.sock"


def test_the_file_may_be_named_by_a_variable(config_file: Path) -> None:
    assert load(environment={"SWITCHML_CONFIG": str(config_file)}).fabric["agents"] == 3


@pytest.mark.parametrize("key", KEYS.values(), ids=lambda key: key.name)
def test_every_key_can_stand_in_the_file_and_in_a_variable(key: Key, tmp_path: Path) -> None:
    texts = {"controller": "h:1", "run_dir": "/x", "job.switch": "leaf", "tls": "/certs"}
    texts["job.aggregators"] = "s1,s2"
    texts |= {"fabric.switch": "bmv2", "fabric.topology": "/t.yaml", "fabric.transport": "udp", "fabric.racks": "2"}
    texts["fabric.program"] = "switchml_floats"
    texts |= {"fabric.leaf": "h1", "fabric.address": "10.0.0.1", "fabric.certificates": "/certs"}
    value = texts.get(key.name, "1")
    assert load(environment={key.variable: value, "XDG_CONFIG_HOME": str(tmp_path)}) is not None
    path = tmp_path / "config.toml"
    table, _, name = key.name.rpartition(".")
    text = value if value.isdigit() else f'"{value}"'
    path.write_text((f"[{table}]\n" if table else "") + f"{name} = {text}\n")
    from_file = load(config_file=path, environment={"XDG_RUNTIME_DIR": "/r"})
    from_variable = load(environment={key.variable: value, "XDG_RUNTIME_DIR": "/r", "XDG_CONFIG_HOME": str(tmp_path)})
    assert from_file == from_variable


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("SWITCHML_FABRIC_AGENTS", "0", "0 is outside 1..64"),
        ("SWITCHML_FABRIC_AGENTS", "many", "many"),
        ("SWITCHML_FABRIC_DROP", "1.5", "outside 0..1"),
        ("SWITCHML_FABRIC_DELAY", "nan", "outside 0..1"),
        ("SWITCHML_CONTROLLER", "localhost", "neither HOST:PORT"),
        ("SWITCHML_CONTROLLER", "localhost:99999", "neither HOST:PORT"),
        ("SWITCHML_CONTROLLER", "unix:relative", "neither HOST:PORT nor unix:/PATH"),
        ("SWITCHML_FABRIC_SWITCH", "tofino", "must be one of soft, bmv2"),
    ],
)
def test_a_wrong_value_is_named_with_its_source(variable: str, value: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=words) as raised:
        load(environment={variable: value, "XDG_CONFIG_HOME": str(tmp_path)})
    assert variable in str(raised.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("agents = 1\n", "unknown key agents"),
        ("[fabric]\nspeed = 1\n", "unknown key fabric.speed"),
        ("[fabric]\nagents = true\n", "whole number"),
        ("[fabric]\ndrop = []\n", "a number from 0 to 1"),
        ("controller = 7\n", "must be text"),
        ("not toml", "is not TOML"),
    ],
)
def test_a_wrong_file_is_refused_by_name(content: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=words) as raised:
        load(config_file=path, environment={})
    assert str(path) in str(raised.value)


def test_a_file_that_was_asked_for_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        load(config_file=tmp_path / "none.toml", environment={})
