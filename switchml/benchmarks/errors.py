"""Errors of the benchmarks."""

__all__ = ["BenchmarkError", "MissingPackage", "MissingPeer", "RankFailed", "ResultFileError"]


class BenchmarkError(Exception):
    """Base class of this package's errors. The text says what happened, to what, and what to do."""


class MissingPackage(BenchmarkError):
    """A package of the extra `bench` or `studies` is not installed: matplotlib, ml_dtypes or simpy."""


class MissingPeer(BenchmarkError):
    """A peer cannot be run on this machine; the text, which its rows show, says how to get it."""


class RankFailed(BenchmarkError):
    """A rank ended, did not answer in time, or got a wrong sum."""


class ResultFileError(BenchmarkError):
    """A file is not the result of a benchmark, or cannot be read or written."""
