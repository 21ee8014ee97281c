"""Priorities of jobs."""
