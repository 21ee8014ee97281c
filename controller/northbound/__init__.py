"""The gRPC interface of the controller to clients and agents."""
