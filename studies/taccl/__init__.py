"""TACCL: synthesized schedules, compared with a ring."""
