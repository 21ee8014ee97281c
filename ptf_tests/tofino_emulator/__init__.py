"""An emulated Tofino: a BfRt server and a model of the TNA program's pipeline over one state."""
