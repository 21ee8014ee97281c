"""What runs as a rank of a benchmark. It needs numpy and its backend only, so that any interpreter can run it."""
