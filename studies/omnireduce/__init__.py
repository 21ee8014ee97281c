"""OmniReduce: gradients whose blocks are mostly zero."""
