"""Attach, print that, and make small all-reduces until told to end."""

import numpy as np

import switchml

with switchml.connect() as comm:
    array = np.ones(1000, np.float32)
    comm.all_reduce(array)
    print("attached", flush=True)
    while True:
        comm.all_reduce(array, op="avg")
