"""Hosts with several accelerators: compression before or after the sum inside a host."""
