"""The agent: one process on every worker host that moves packets between its ranks' shared memory and the switch."""
