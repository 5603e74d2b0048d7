#!/bin/sh
MODEL=/data/models/qwen2.5-7b
SGLANG_ARGS="--tp 2 --mem-fraction-static 0.85 \
  --speculative-algorithm EAGLE --speculative-draft-model-path /data/models/draft"
echo "starting $MODEL"
python3 -m sglang.launch_server --model-path $MODEL $SGLANG_ARGS 2>&1 | tee -a /var/log/sglang.log
