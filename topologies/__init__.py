"""Topology files, pictures of them, and the network namespaces that they are laid out in."""
