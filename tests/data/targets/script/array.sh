#!/usr/bin/env bash
ARGS=(
  --model-path "/data/models/llama 3"   # with a blank, sadly
  --tp 2
  # see the wiki
  --port 30000   # api
  --speculative-algorithm EAGLE
)
ARGS+=(--enable-metrics)
exec python3 -m sglang.launch_server "${ARGS[@]}"
