"""The northbound interface: the .proto files, and the modules that the `generate` module makes from them."""
