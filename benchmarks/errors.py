"""What can go wrong in a benchmark."""

__all__ = ["BenchmarkError", "MissingPeer", "NoMatplotlib", "RankFailed", "ResultFileError"]


class BenchmarkError(Exception):
    """Base of this package's errors. The text says what happened, to what, and what to do."""


class MissingPeer(BenchmarkError):
    """A peer cannot be run on this machine; the text says how to get it. Its rows say so."""


class RankFailed(BenchmarkError):
    """A rank ended, did not answer in time, or got a wrong sum."""


class NoMatplotlib(BenchmarkError):
    """Plots were asked for and matplotlib is not installed."""


class ResultFileError(BenchmarkError):
    """A file is no result of a benchmark, or cannot be read or written."""
