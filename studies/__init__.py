"""Studies: one for each paper around SwitchML, and some of its parts. The product does not import them."""
