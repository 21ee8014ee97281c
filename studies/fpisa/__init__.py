"""FPISA: sums of floats in a switch."""
