"""Sources of the peers that are compiled on the machine where they are measured."""
