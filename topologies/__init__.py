"""Lays a fabric out: the embedded one of local processes, and the launcher that runs a job's workers on it."""
