"""What a communicator says of itself and its job."""

from __future__ import annotations

from switchml.generation import Generation

__all__ = ["Membership"]


class Membership:
    """A rank in the present epoch of its job."""

    _generation: Generation

    @property
    def rank(self) -> int:
        """The rank of this process, 0 to `world_size` - 1; it may change with the epoch."""
        return self._generation.attachment.rank

    @property
    def world_size(self) -> int:
        """The number of ranks of the job; it may change with the epoch."""
        return self._generation.attachment.world_size

    @property
    def name(self) -> str:
        """The name of the job."""
        return self._generation.attachment.name

    @property
    def epoch(self) -> int:
        """The epoch that the job is in; it changes with each loss that the job survives."""
        return self._generation.attachment.epoch

    @property
    def generation(self) -> int:
        """How often the job had changed to another epoch when the present one began: 0 in its first."""
        return self._generation.attachment.generation

    @property
    def joined(self) -> tuple[int, ...]:
        """The ranks whose processes began anew with this epoch: those that lack what the others have trained so far."""
        return self._generation.attachment.joined

    @property
    def failure_policy(self) -> str:
        """What becomes of the job when a rank is lost: "abort", "shrink" or "restart"."""
        return self._generation.attachment.on_failure

    @property
    def slots(self) -> int:
        """The slots of the job's pool: no rank is further ahead of another one than so many chunks."""
        return self._generation.native.slots

    @property
    def values_per_packet(self) -> int:
        """The 32-bit values of a chunk; a call is cut into that many of them a chunk, and is one chunk at least."""
        return self._generation.native.values_per_packet

    @property
    def position(self) -> int:
        """The chunks that this rank has the results of, in this epoch; it stands still where nothing progresses."""
        return self._generation.native.position
