"""Live logs to findings: what the daemon keeps of each stream and server."""
