"""The northbound interface: switchml.proto and what `python -m switchml.controller.proto.generate` makes of it."""
