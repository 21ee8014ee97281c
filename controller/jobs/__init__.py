"""The jobs: their start, recovery and end."""
