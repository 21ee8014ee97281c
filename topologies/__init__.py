"""Lays a fabric out, of local processes or in network namespaces, and runs a job's workers on it."""
