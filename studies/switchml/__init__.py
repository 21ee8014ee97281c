"""A discrete-event simulation of all-reduces through a tree of switches, for the study of SwitchML.

Bottom up: `network` has packets and links, `switch` the state of slots, `sender` the window and the timers of a rank,
and `tree` connects them and runs one all-reduce. Times are whole picoseconds, so that results can be compared with
arithmetic exactly. The events are SimPy's, which SwitchML does not require otherwise.
"""
