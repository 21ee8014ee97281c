"""Measures SwitchML beside Gloo and Open MPI on this machine: what `switchml-ctl bench` runs.

One module for each benchmark (allreduce, latency, loss, jobs, kernels, memory, python_cost); they return data.
`report` and `plots` show it. `workers` is what runs as a rank, `peers` what a C compiler makes a rank of.
"""
