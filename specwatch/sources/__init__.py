"""Where log lines come from, one file a kind."""
