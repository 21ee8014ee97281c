"""Sources of the peers that are compiled where they are measured."""
