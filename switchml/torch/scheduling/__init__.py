"""Cross-barrier training: the next forward pass starts before all gradients are averaged.

optimizer = scheduling.ScheduledOptimizer(torch.optim.AdamW(model.parameters()), model, policy="bytescheduler")
"""

from switchml.client.schedules import POLICIES, Policy
from switchml.torch.scheduling.scheduled import ScheduledOptimizer
from switchml.torch.scheduling.tune import Tuner

__all__ = ["POLICIES", "Policy", "ScheduledOptimizer", "Tuner"]
