"""The control plane: jobs, slots, ranks and switches behind one gRPC interface."""
