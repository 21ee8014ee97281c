"""Compile the P4 program."""

from switchml.dataplane.compiler.compile_p4 import main

main()
