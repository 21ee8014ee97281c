"""Hosts with several ranks."""
