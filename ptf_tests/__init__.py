"""Packet tests of the SwitchML data plane: one suite for every target, run on ptf."""
