"""The handle of a collective in flight."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from switchml.calls import Call

if TYPE_CHECKING:
    from switchml._native import Outcome
    from switchml.communicator import Communicator
    from switchml.generation import Generation

__all__ = ["Work"]


class Work:
    """A collective in flight. Its array must be neither read nor written before `wait` has returned."""

    def __init__(
        self, communicator: Communicator, generation: Generation, call: Call, deadline: float, timeout: float
    ) -> None:
        self._communicator = communicator
        self._generation = generation
        self._call = call
        self._deadline = deadline
        self._timeout = timeout
        self._waiting = threading.Lock()
        self._outcome: Outcome | None = None

    def is_completed(self) -> bool:
        """Tell, without waiting, whether the collective has ended, one way or the other."""
        return self._outcome is not None or self._communicator._has_ended(self)

    def ends_within(self, seconds: float) -> bool:
        """Wait at most `seconds`, and tell whether the collective has ended; it goes on where it has not."""
        with self._waiting:
            return self._communicator._ends_within(self, seconds)

    def wait(self) -> None:
        """Wait for the end of the collective, until its timeout; afterwards the array holds the result.

        Raises:
            NonFiniteError: a rank contributed NaN or infinity; the array is NaN in the places named and
                right elsewhere.
            SwitchMLError: any other of this library's errors; the array holds nothing that can be used.

        """
        with self._waiting:
            self._communicator._wait(self)

    def __del__(self) -> None:
        if self._outcome is None:
            self._generation.orphans.append(self._call.sequence)

    def __repr__(self) -> str:
        return f"<switchml.Work {self._call}, {'ended' if self.is_completed() else 'in flight'}>"
