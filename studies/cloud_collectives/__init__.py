"""Cloud Collectives: what another order of ranks saves."""
