"""Compile the P4 program for BMv2 and Tofino into files that are checked in; only for a checkout."""
