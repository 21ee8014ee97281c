"""Whether a job can be had, and which slots and agents it gets."""
