"""What survives a restart of the controller."""
