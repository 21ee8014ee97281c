"""The Debian package: ``python -m tools.debian``."""
