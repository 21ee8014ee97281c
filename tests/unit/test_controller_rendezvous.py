"""The names of jobs that begin by rendezvous."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchml.common.names import is_job_name
from switchml.controller.jobs.rendezvous import MAX_KEY, job_name


@given(st.text(min_size=1, max_size=MAX_KEY))
def test_every_key_makes_a_name_that_jobs_may_have(key: str) -> None:
    assert is_job_name(job_name(key))
    assert job_name(key) == job_name(key)


@given(st.lists(st.text(min_size=1, max_size=MAX_KEY), min_size=2, max_size=20, unique=True))
def test_different_keys_make_different_names(keys: list[str]) -> None:
    assert len({job_name(key) for key in keys}) == len(keys)


@given(st.text(min_size=1, max_size=MAX_KEY))
def test_a_key_makes_another_name_for_each_tenant(key: str) -> None:
    assert len({job_name(key, tenant) for tenant in ("", "vision", "speech")}) == 3


@pytest.mark.parametrize(
    ("key", "begins"),
    [
        ("node1:29500/run-7/0", "node1-29500-run-7-0-"),
        ("x" * 200, "x" * 55 + "-"),
        ("///", "job-"),
        ("größe", "gr-e-"),
        ("train-digits @ node1:29500/digits/0", "train-digits-"),
        ("@ node1:1", "node1-1-"),
    ],
)
def test_names_show_what_can_be_read_of_the_key(key: str, begins: str) -> None:
    name = job_name(key)
    assert name.startswith(begins)
    assert len(name) == len(begins) + 8
