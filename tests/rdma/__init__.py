"""RDMA cards without hardware: Linux's software RoCEv2 (rdma_rxe) in a guest under QEMU, on the soft switch."""
