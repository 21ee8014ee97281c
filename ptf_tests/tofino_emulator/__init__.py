"""A Tofino without a chip: a BfRt server and a model of our TNA program's pipeline over one state."""
