"""The data that survive a restart of the controller."""
