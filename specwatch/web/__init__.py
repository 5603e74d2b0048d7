"""The HTTP side of the daemon: metrics, health, the page, the JSON API. Reads the store, never the logs."""
