"""A hard threshold: the total error of sparsification with error feedback."""
