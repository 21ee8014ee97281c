"""The switch: the wire format, the P4 programs and the soft switch."""
