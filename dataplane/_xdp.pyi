# Only there where libxdp and libbpf were found when SwitchML was built; switchml.dataplane.devices is the way in.

# The device's only queue, for an Engine or a Switch, its MAC address, the bytes of its largest frame, and what it does
# for us. Raises ValueError when there is no such interface, or one with several receive queues, and OSError when the
# kernel refuses.
def open_device(interface: str) -> tuple[list[object], int, int, str]: ...
