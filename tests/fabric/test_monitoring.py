"""The metrics of switchml/monitoring/ exist in the processes of a fabric, and exported metrics are well-formed."""

import json
import os
import re
import shutil
import socket
import stat
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from switchml.controller.client import ControllerClient
from tests.support.fabric_harness import Ctl, wait_until

NOBODY = 65534
SECONDS = 60
MONITORING = Path(__file__).parents[2] / "switchml" / "monitoring"
DASHBOARD = json.loads((MONITORING / "grafana-dashboard.json").read_text())
RULES = yaml.safe_load((MONITORING / "alerts.yml").read_text())
FROM_PROMETHEUS = {"instance", "job", "process"}  # labels that a scrape adds
UNITS = ("_seconds", "_bytes", "_chunks", "_slots", "_info", "_ranks", "_workers", "_packets")
WITH_TLS = {"switchml_certificate_expiry_timestamp_seconds"}  # tests/unit/test_metrics.py reads it
COUNTS = {"switchml_jobs", "switchml_agents"}  # counts by state
FLAGS = re.compile(r"switchml_\w+_(up|primary|registered|failed)")


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    of_panels = [target["expr"] for panel in panels() for target in panel["targets"]]
    of_rules = [rule["expr"] for group in RULES["groups"] for rule in group["rules"]]
    return [text.replace("$__rate_interval", "1m").replace("$job_name", ".*") for text in of_panels + of_rules]


def test_the_alert_about_a_failed_job_names_it_with_its_switch_and_the_cause() -> None:
    [rule] = [rule for group in RULES["groups"] for rule in group["rules"] if rule["alert"] == "SwitchMLJobFailed"]
    said = " ".join(rule["annotations"].values())
    assert all(f"{{{{ $labels.{name} }}}}" in said for name in ("job_name", "switch", "cause"))


def selectors(node: Any) -> Iterator[promql_parser.VectorSelector]:
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for name in ("lhs", "rhs", "expr", "vector_selector", "param"):
        child = getattr(node, name, None)
        if child is not None:
            yield from selectors(child)
    for child in getattr(node, "args", None) or ():
        yield from selectors(child)


# ---- the files ------------------------------------------------------------------------------------------------------


def test_dashboard_has_a_grafana_dashboards_shape() -> None:
    assert {"title", "uid", "schemaVersion", "templating", "panels", "time"} <= DASHBOARD.keys()
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, f"{panel['title']} lies over another panel"
        taken |= cells
    for panel in panels():
        assert panel["type"] in ("timeseries", "stat")
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["targets"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        for target in panel["targets"]:
            # The labels in a legend must be in the result.
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                by = re.search(r"by \(([\w, ]+)\)", target["expr"])
                assert by is None or label in by[1]
    assert {variable["name"] for variable in DASHBOARD["templating"]["list"]} == {"datasource", "job_name"}


def test_rules_have_prometheus_rules_shape() -> None:
    assert RULES.keys() == {"groups"}
    names = []
    for group in RULES["groups"]:
        assert group.keys() == {"name", "rules"}
        for rule in group["rules"]:
            names.append(rule["alert"])
            assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
            assert re.fullmatch(r"SwitchML[A-Za-z]+", rule["alert"])
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert rule["annotations"].keys() == {"summary", "description"}
            assert re.fullmatch(r"\d+[smh]", rule.get("for", "1s"))
    assert len(names) == len(set(names))
    documented = (Path(__file__).parents[2] / "docs" / "operate" / "monitoring.md").read_text()
    assert all(f"`{name}`" in documented for name in names)


def checked(place: Path, *arguments: str) -> None:
    """Let promtool check a file, if it is installed."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is missing (Debian: prometheus)")
    done = subprocess.run(["promtool", "check", *arguments], cwd=place, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_rules() -> None:
    checked(MONITORING, "rules", "alerts.yml")


def test_the_configuration_of_daemons_has_their_addresses_and_token(ctl: Ctl, tmp_path: Path) -> None:
    (tmp_path / "alerts.yml").write_text(ctl.run("monitoring", "alerts").stdout)
    (tmp_path / "token").write_text("0123456789abcdef")
    (tmp_path / "token").chmod(0o600)
    daemons = ("--daemon", "controller=10.0.0.1:9801", "--daemon", "h1=10.0.0.7:9803")
    files = ("--token", str(tmp_path / "token"), "--rules", str(tmp_path / "alerts.yml"))
    (tmp_path / "prometheus.yml").write_text(ctl.run("monitoring", "prometheus", *daemons, *files).stdout)
    [scraped] = yaml.safe_load((tmp_path / "prometheus.yml").read_text())["scrape_configs"]
    assert scraped["authorization"] == {"credentials": "0123456789abcdef"}
    assert [(target["targets"], target["labels"]["process"]) for target in scraped["static_configs"]] == [
        (["10.0.0.1:9801"], "controller"), (["10.0.0.7:9803"], "h1")]  # fmt: skip
    checked(tmp_path, "config", "prometheus.yml")


def test_a_fabric_without_metrics_is_named(ctl: Ctl) -> None:
    assert "no fabric runs in" in ctl.run("monitoring", "prometheus", status=4).stderr


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is missing")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run Prometheus as another user")
def test_a_prometheus_of_another_user_scrapes_the_fabric(fabric: Ctl) -> None:
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        alerts, config = place / "alerts.yml", place / "prometheus.yml"
        alerts.write_text(fabric.run("monitoring", "alerts").stdout)
        config.write_text(fabric.run("monitoring", "prometheus", "--rules", str(alerts)).stdout)
        checked(place, "config", "prometheus.yml")
        for path in (place, alerts, config):
            os.chown(path, NOBODY, NOBODY)
        with socket.create_server(("127.0.0.1", 0)) as holder:
            address = f"127.0.0.1:{holder.getsockname()[1]}"
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={place / 'data'}"]
        command += [f"--web.listen-address={address}"]
        with (place / "log").open("wb") as log:
            server = subprocess.Popen(command, cwd=place, stdout=log, stderr=log, user=NOBODY, group=NOBODY)
        try:
            wait_until(lambda: healths(address) == {"agent-0", "controller", "switch-0"}, "all are scraped", SECONDS)
        finally:
            server.terminate()
            server.wait(SECONDS)
    finally:
        shutil.rmtree(place)


def healths(address: str) -> set[str]:
    """Return the processes that a Prometheus server has scraped successfully."""
    try:
        with urllib.request.urlopen(f"http://{address}/api/v1/targets", timeout=10) as answer:
            targets = json.load(answer)["data"]["activeTargets"]
    except OSError:
        return set()
    return {target["labels"]["process"] for target in targets if target["health"] == "up"}


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_expressions_are_promql(expression: str) -> None:
    assert list(selectors(promql_parser.parse(expression)))


# ---- the processes --------------------------------------------------------------------------------------------------


def scrape(address: str, token: str = "") -> dict[str, set[str]]:
    """Return the sample names with their label names; check the rules for exporters."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://{address}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        text = answer.read().decode()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        seen = set()
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            assert (sample.name, labels) not in seen, f"{sample.name} has {sample.labels} twice"
            seen.add((sample.name, labels))
            found.setdefault(sample.name, set()).update(sample.labels)
        if family.name.startswith("switchml_"):
            assert family.type in ("gauge", "counter", "histogram")
            named_well = family.type == "counter" or family.name.endswith(UNITS)
            assert named_well or family.name in COUNTS or FLAGS.fullmatch(family.name), family.name
            if family.type == "histogram":
                assert family.name.endswith("_seconds")
                check_histogram(family)
    return found


def check_histogram(family: Any) -> None:
    series: dict[frozenset[tuple[str, str]], list[tuple[float, float]]] = {}
    counts = {}
    for sample in family.samples:
        own = frozenset((name, value) for name, value in sample.labels.items() if name != "le")
        if sample.name.endswith("_bucket"):
            series.setdefault(own, []).append((float(sample.labels["le"]), sample.value))
        elif sample.name.endswith("_count"):
            counts[own] = sample.value
    assert series
    for own, buckets in series.items():
        assert buckets == sorted(buckets)
        assert [count for _, count in buckets] == sorted(count for _, count in buckets)
        assert buckets[-1] == (float("inf"), counts[own])


def free_ports(count: int) -> int:
    """Return the first of `count` consecutive free ports."""
    for first in range(21000, 30000, count):
        try:
            for number in range(first, first + count):
                with socket.create_server(("127.0.0.1", number)):
                    pass
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


def test_what_is_asked_for_is_there(ctl: Ctl) -> None:
    ctl.run("up", "--transport", "udp")
    targets = json.loads((ctl.run_dir / "prometheus.json").read_text())
    addresses = {target["labels"]["process"]: target["targets"][0] for target in targets}
    assert addresses.keys() == {"switch-0", "controller", "agent-0"}
    assert all(address.startswith("127.0.0.1:") for address in addresses.values())
    # Not every user of the machine may read jobs and positions of ranks.
    token_file = ctl.run_dir / "metrics.token"
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    token = token_file.read_text().strip()
    for address in addresses.values():
        with pytest.raises(urllib.error.HTTPError, match="401"):
            scrape(address)
    first = free_ports(2)
    ctl.environment["SWITCHML_METRICS"] = str(first)
    ctl.run("job", "start", "--workers", "1", "--name", "fails", "--", "false", status=1)
    job = ctl.start("job", "start", "--workers", "2", "--name", "busy", *ctl.worker("waits"))
    try:
        wait_for_calls(ctl)
        exported: dict[str, set[str]] = {}
        processes = {}
        for name, address in {**addresses, "0": f"127.0.0.1:{first}", "1": f"127.0.0.1:{first + 1}"}.items():
            processes[name] = scrape(address, token if name in addresses else "")
            for metric, labels in processes[name].items():
                exported.setdefault(metric, set()).update(labels)
        for expression in expressions():
            for selector in selectors(promql_parser.parse(expression)):
                if selector.name in WITH_TLS:
                    continue
                assert selector.name in exported, f"{expression}: no process exports {selector.name}"
                for matcher in selector.matchers.matchers:
                    known = exported[selector.name] | FROM_PROMETHEUS
                    assert matcher.name in known, f"{expression}: {selector.name} has no label {matcher.name}"
        assert {"job_name", "switch", "cause"} <= exported["switchml_job_failed_timestamp_seconds"]
        for rank in ("0", "1"):
            assert {"switchml_process_calls_total", "switchml_process_call_seconds_bucket"} <= processes[rank].keys()
            assert processes[rank]["switchml_process_calls_total"] == {"job_name", "rank"}
        documented = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()
        families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported if name.startswith("switchml_")}
        missing = [name for name in sorted(families) if f"`{name}`" not in documented]
        assert not missing, f"docs/reference/metrics.md does not say what these are: {missing}"
    finally:
        ctl.run("job", "stop", "busy")
        job.communicate(timeout=60)
    ctl.run("down")
    assert not (ctl.run_dir / "prometheus.json").exists()
    assert not token_file.exists()


def wait_for_calls(ctl: Ctl) -> None:
    end = time.monotonic() + 60
    with ControllerClient(json.loads((ctl.run_dir / "fabric.json").read_text())["controller"]) as client:
        while True:
            jobs = {job.name: job for job in client.list_jobs()}
            if "busy" in jobs and sum(rank.calls for rank in client.profile_job("busy").ranks) > 100:
                return
            assert time.monotonic() < end
            time.sleep(0.1)
