#!/bin/sh
exec sglang serve --config @CONFIG@ --port 30000
