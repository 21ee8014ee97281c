"""P3: slices of gradients by priority."""
