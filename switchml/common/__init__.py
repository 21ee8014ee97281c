"""Code that every program shares: TLS, logs, metrics, processes, deadlines and user-facing errors."""
