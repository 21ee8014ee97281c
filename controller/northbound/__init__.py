"""What clients and agents ask of the controller, over gRPC."""
