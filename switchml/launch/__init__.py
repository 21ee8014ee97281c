"""The embedded fabric, its run directory and settings, and the workers of a job."""
