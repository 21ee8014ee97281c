"""The soft switch: the native aggregator and its P4Runtime server."""
