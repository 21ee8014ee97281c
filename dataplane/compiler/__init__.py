"""Compiles the P4 program for BMv2 and Tofino and checks the results in; only for a checkout."""
