"""The soft switch: the native aggregator and the P4Runtime server in front of it."""
