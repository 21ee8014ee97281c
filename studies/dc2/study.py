"""DC2 (Abdelmoniem and Canini, INFOCOM 2021): as much compression as the delay of the network needs."""

from studies.grace.study import compression

__all__ = ["command"]

command = compression(
    "dc2",
    "wire:bits=16,wire:bits=8,delay_control:target=0.5",
    "Compare delay control with lanes of fixed widths: bytes, steps over links, accuracy.",
)
