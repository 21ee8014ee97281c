"""The jobs: how they start, go on and end."""
