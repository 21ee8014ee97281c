"""Benchmarks that compare SwitchML with Gloo and Open MPI on this machine, for `switchml-ctl bench`.

One module for each benchmark (allreduce, latency, loss, jobs, kernels, memory, links, ddp, sparse); they return data,
which `report` and `plots` present. `workers` has the code of a rank, `peers` the C source of Open MPI's ranks. The
studies of the checkout use the same parts.
"""
