"""Admission of jobs, with the choice of their slots and agents."""
