"""Findings for others: alerts of ours, and alerts of others with what we know.

Nothing is imported here, so that no command pays for what it does not use: `enrich.enrich` is for a pipe, `gateway.
receive` for a web server, `kinds` and `gateway.routes` for whoever sends.
"""
