"""GRACE: gradient compression."""
