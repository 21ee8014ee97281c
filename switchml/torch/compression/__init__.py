"""Compression of gradients.

    state = compression.CompressionState(model, compression.by_name("shared_topk", density=0.01))
    model.register_comm_hook(state, compression.compression_hook)

Methods are described by `table`, and in docs/guides/compression.md.
"""

from switchml.torch.compression.compressor import Compressor, Outcome, Place, Rounds
from switchml.torch.compression.control import DelayControl
from switchml.torch.compression.exchange import Exchange
from switchml.torch.compression.hook import CompressionState, compression_hook
from switchml.torch.compression.hosts import HostCompressionState
from switchml.torch.compression.memory import ErrorFeedback, Memory, MomentumCorrection, MovingAverage, NoMemory
from switchml.torch.compression.requests import Average, FromLeader, Gather, Largest, Request, Sparse, Sum
from switchml.torch.compression.table import METHODS, by_name, table

__all__ = [
    "METHODS",
    "Average",
    "CompressionState",
    "Compressor",
    "DelayControl",
    "ErrorFeedback",
    "Exchange",
    "FromLeader",
    "Gather",
    "HostCompressionState",
    "Largest",
    "Memory",
    "MomentumCorrection",
    "MovingAverage",
    "NoMemory",
    "Outcome",
    "Place",
    "Request",
    "Rounds",
    "Sparse",
    "Sum",
    "by_name",
    "compression_hook",
    "table",
]
