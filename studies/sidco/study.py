"""SIDCo (Abdelmoniem et al., MLSys 2021): thresholds from a fit to the gradient, in place of a sort."""

from studies.grace.study import compression

__all__ = ["command"]

command = compression(
    "sidco",
    "topk:density=0.01,dgc:density=0.01,sidco:density=0.01,sidco:density=0.001,shared_sidco:density=0.01",
    "Compare SIDCo with Top-k and DGC: computing, bytes, steps over links, accuracy.",
)
