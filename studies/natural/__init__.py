"""Natural compression: powers of two."""
