"""Topology files, drawings of them, and the network namespaces that implement them."""
