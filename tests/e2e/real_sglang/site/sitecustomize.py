"""Put this folder on PYTHONPATH: every Python started, the spawned schedulers too, can import SGLang without a GPU."""

import sgstubs

sgstubs.install()
