"""The counters on a metrics page, to compare with those of counters.toml."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from switchml.common.counters import Counter

Exported = set[tuple[str, frozenset[tuple[str, str]]]]

SERIES = {"job_name", "rank", "port", "le"}  # labels that distinguish the series of one counter


def page(address: str) -> list[Metric]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
        return list(text_string_to_metric_families(answer.read().decode()))


def counters_on(families: Iterable[Metric], prefix: str) -> Exported:
    """Return the counters and histograms whose names begin with `prefix`, with the labels that distinguish them."""
    return {
        (
            f"{family.name}_total" if family.type == "counter" else family.name,
            frozenset((label, value) for label, value in sample.labels.items() if label not in SERIES),
        )
        for family in families
        for sample in family.samples
        if family.name.startswith(prefix) and family.type in ("counter", "histogram")
    }


def described(counters: Iterable[Counter]) -> Exported:
    """Return the same of counters in the table."""
    return {(counter.metric, frozenset(counter.labels.items())) for counter in counters if counter.metric}
