"""Natural compression (Horvath et al., MSML 2022): powers of two at random, gathered, or summed by the switch."""

from studies.grace.study import compression

__all__ = ["command"]

command = compression(
    "natural",
    "wire:bits=8,natural,codes:codes=natural8",
    "Compare natural compression with lanes of 8 bits: computing, bytes, steps over links, accuracy.",
)
