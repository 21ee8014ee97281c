"""RDMA: the ceilings that packets set to sums of RDMA network cards."""
