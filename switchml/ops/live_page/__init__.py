"""The fabric's activity as a page in a browser: `switchml-ctl top --web`."""
