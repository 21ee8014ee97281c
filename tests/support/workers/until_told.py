"""Make checked all-reduces until a file exists, also after losses; the argument is its path."""

import sys
import time
from pathlib import Path

import numpy as np

import switchml

with switchml.connect() as comm:
    going = True
    while going:
        x = np.array([not Path(sys.argv[1]).exists(), 1], np.int32)
        try:
            comm.all_reduce(x)
        except switchml.WorldChanged:
            print(f"goes on as one of {comm.world_size}", flush=True)
            continue
        assert x[1] == comm.world_size, "a wrong sum"
        print(f"sum of {comm.world_size}", flush=True)
        going = x[0] == comm.world_size
        time.sleep(0.02)
    print("told", flush=True)
