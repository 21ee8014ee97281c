"""The command line of switchml-agent."""

import pytest
from click.testing import CliRunner

from switchml.common.version import VERSION
from switchml.host_agent.daemon import main


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Missing option '--controller'"),
        (["--controller", "localhost"], "'localhost' is neither HOST:PORT"),
        (["--controller", "localhost:0"], "is neither HOST:PORT"),
        (["--controller", "localhost:99999"], "is neither HOST:PORT"),
        (["--controller", "unix:relative"], "nor unix:/PATH"),
        (["--controller", "unix:/c.sock"], "give this option, or set SWITCHML_AGENT or SWITCHML_RUN_DIR"),
        (["--controller", "h:1"], "give this option, or set SWITCHML_AGENT or SWITCHML_RUN_DIR"),
        (["--controller", "h:1", "--socket", "s", "--address", "host-7"], "'host-7' is not an IPv4 address"),
        (["--controller", "h:1", "--socket", "s", "--mac", "02-00"], "'02-00' is not a MAC address"),
        (["--controller", "h:1", "--socket", "s", "--switch-port", "512"], "--switch-port"),
        (["--controller", "h:1", "--socket", "s", "--max-ranks", "0"], "--max-ranks"),
        (["--controller", "h:1", "--socket", "s", "--next-hop", "02-00"], "'02-00' is not a MAC address"),
        (["--controller", "h:1", "--socket", "s", "--poll", "never"], "--poll"),
        (["--controller", "h:1", "--socket", "s", "--dscp", "7"], "'7' is not PRIORITY=DSCP, such as 7=46"),
        (["--controller", "h:1", "--socket", "s", "--dscp", "8=0"], "a priority is at most 7, a DSCP at most 63"),
        (["--controller", "h:1", "--socket", "s", "--dscp", "7=64"], "a priority is at most 7, a DSCP at most 63"),
        (["--controller", "h:1", "--socket", "s", "--dscp", "7=46,7=0"], "priority 7 is there twice"),
    ],
)
def test_options_that_are_wrong(arguments: list[str], words: str) -> None:
    empty = dict.fromkeys(("SWITCHML_CONTROLLER", "SWITCHML_AGENT", "SWITCHML_RUN_DIR"))
    result = CliRunner().invoke(main, arguments, env=empty)
    assert result.exit_code == 2
    assert words in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--transport", "dpdk"], "transport dpdk needs a device (--device)"),
        (
            ["--transport", "xdp", "--device", "eth0", "--threads", "2"],
            "AF_XDP has one queue, which one data thread moves",
        ),
        (["--transport", "udp", "--device", "eth0"], "--device eth0 is for --transport dpdk, xdp or rdma, not udp"),
    ],
)
def test_options_that_contradict_each_other(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(main, ["--controller", "localhost:1", "--socket", "s", *arguments])
    assert result.exit_code == 1
    assert words in result.output


def test_version() -> None:
    assert VERSION in CliRunner().invoke(main, ["--version"]).output
