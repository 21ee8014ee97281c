"""The weighed sum of a block's words, as tests of kernels expect it."""

from __future__ import annotations

from collections.abc import Sequence

from switchml._native import kernels

_WEIGHTS = kernels.weights()


def weighed_sum(words: Sequence[int]) -> int:
    """Return the sum of the weights' products with the words, as signed integers of 32 bits, modulo 2^64."""
    signed = ((word + 2**31) % 2**32 - 2**31 for word in words)
    return sum(weight * word for weight, word in zip(_WEIGHTS, signed, strict=False)) % 2**64
