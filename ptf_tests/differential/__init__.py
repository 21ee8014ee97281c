"""Differential tests: the same random packets and table writes for the soft switch and for BMv2."""
