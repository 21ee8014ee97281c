"""A ring against a switch: bytes and time by the number of hosts."""
