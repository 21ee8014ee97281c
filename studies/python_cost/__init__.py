"""The cost of Python in an all-reduce."""
