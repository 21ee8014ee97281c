"""The agent: one process on every worker host that moves its ranks' packets between shared memory and the switch."""
