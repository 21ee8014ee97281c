"""DC2: compression that follows the delay of the network."""
