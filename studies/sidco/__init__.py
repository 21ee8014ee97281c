"""SIDCo: thresholds of sparse gradients."""
