"""Tests of libswitchml, with programs in C that gcc compiles."""
