"""ByteScheduler: the order of communication in training."""
