"""The commands of switchml-ctl, one module for each group."""
