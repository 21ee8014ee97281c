# Only there where libdpdk was found when SwitchML was built; switchml.dataplane.devices is the way in.

# Starts DPDK's environment, once in a process, with both; the same arguments again change nothing. Raises ValueError
# for arguments that cannot be, and OSError when DPDK refuses: then it can be tried again in a new process only.
def start_eal(arguments: list[str], defaults: list[str]) -> None: ...

# Ends it, once all devices are closed.
def stop_eal() -> None: ...

# The device's queues for an Engine or a Switch, its MAC address, the bytes of its largest frame, and what it does for
# us. With `mtu` 0 that stays as it is. Raises ValueError when there is no such device, it is open or has fewer than
# `queues`, and OSError when DPDK refuses.
def open_device(devargs: str, mtu: int, promiscuous: bool, queues: int) -> tuple[list[object], int, int, str]: ...
