"""TicTac (Hashemi et al., MLSys 2019): an order of transfers that follows from the graph of the computation."""

from studies.bytescheduler.study import schedules

__all__ = ["command"]

command = schedules("tictac", "tictac-tic,tictac-tac", "Compare both orders of TicTac with that of the backward pass.")
