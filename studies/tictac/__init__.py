"""TicTac: orders of transfers from the graph."""
