"""The code of a benchmark's ranks. It needs only numpy and its backend, so that any interpreter can run it."""
