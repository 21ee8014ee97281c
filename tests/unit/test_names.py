"""Ids and names of jobs cannot be confused."""

from __future__ import annotations

import pytest

from switchml.common.names import is_job_name, parse_job_reference


@pytest.mark.parametrize(("text", "job"), [("2", 2), ("0", 0), ("007", 7), ("4294967296", 2**32)])
def test_digits_alone_are_an_id(text: str, job: int) -> None:
    assert parse_job_reference(text) == job
    assert not is_job_name(text)


@pytest.mark.parametrize("text", ["digits", "2a", ".2", "2.0", "1_000", "x" * 64])
def test_anything_else_is_a_name(text: str) -> None:
    assert parse_job_reference(text) == text
    assert is_job_name(text)


@pytest.mark.parametrize("text", ["", "a b", "x" * 65, "\u0662", "2\n", "9" * 5000, "-2", "-rf", "--all"])
def test_what_is_neither(text: str) -> None:
    assert parse_job_reference(text) == text
    assert not is_job_name(text)
