"""Errors of the benchmarks."""

__all__ = ["BenchmarkError", "MissingPeer", "NoMatplotlib", "RankFailed", "ResultFileError"]


class BenchmarkError(Exception):
    """Base class of this package's errors. The text says what happened, to what, and what to do."""


class MissingPeer(BenchmarkError):
    """A peer cannot be run on this machine; the text, which its rows show, says how to get it."""


class RankFailed(BenchmarkError):
    """A rank ended, did not answer in time, or got a wrong sum."""


class NoMatplotlib(BenchmarkError):
    """Plots were requested and matplotlib is not installed."""


class ResultFileError(BenchmarkError):
    """A file is not the result of a benchmark, or cannot be read or written."""
