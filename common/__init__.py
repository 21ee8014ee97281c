"""What every program shares: TLS, logs, metrics, processes, deadlines and the errors that people are shown."""
