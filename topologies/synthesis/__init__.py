"""Synthesis of schedules of collectives for a topology, as TACCL does it (Shah et al., NSDI 2023)."""
