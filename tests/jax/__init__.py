"""Tests of all-reduces in JAX programs; `make test-jax` runs them in an environment that has JAX."""
