"""Tests of studies. Their import registers their tables and plots."""

import studies.__main__  # noqa: F401
