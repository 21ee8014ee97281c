"""P3 (Jayarajan et al., MLSys 2019): slices of gradients, in the order of the next forward pass."""

from studies.bytescheduler.study import schedules

__all__ = ["command"]

command = schedules("p3", "p3", "Compare the order and the slices of P3 with the order of the backward pass.")
