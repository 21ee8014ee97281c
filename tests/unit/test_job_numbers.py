"""Numbers of ranks as text: each of a few, ranges of many, and never a text that grows with the job."""

import pytest

from switchml.common.job_numbers import rank_numbers


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([5, 3], "5, 3"),
        (range(16), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15"),
        (range(17), "0 to 16"),
        ([70, *range(64)], "0 to 63, 70"),
        ([*range(1, 4096)], "1 to 4095"),
        (range(0, 34, 2), "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30 and 1 more"),
        (
            [*range(0, 32, 2), *range(100, 200)],
            "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30 and 100 more",
        ),
    ],
)
def test_text(ranks: list[int], text: str) -> None:
    assert rank_numbers(ranks) == text


def test_the_text_of_all_ranks_of_the_largest_job_is_short() -> None:
    assert max(len(rank_numbers(range(0, 4096, step))) for step in range(1, 100)) < 120
