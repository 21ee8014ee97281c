"""The protocol as a Promela model, and what runs SPIN on it."""
