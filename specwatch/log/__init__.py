"""From raw lines to incidents: framing, tracebacks, runs, echoes."""
