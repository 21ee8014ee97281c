"""The northbound interface: switchml.proto and what `python -m controller.proto.generate` makes of it."""
