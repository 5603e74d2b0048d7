#!/bin/bash
# starts the 70B
set -euo pipefail
export HF_HOME=/data/hf
export CUDA_VISIBLE_DEVICES=0,1,2,3
cd /opt/sglang
exec python3 -m sglang.launch_server \
  --model-path /data/models/llama-3.1-70b \
  --tp 4 \
  --host 0.0.0.0 --port 30000 \
  --enable-metrics
