#!/bin/bash
cat > /tmp/notes.txt <<'EOF'
python3 -m sglang.launch_server --model-path /not/this/one --tp 64
EOF
SGLANG_LOG_MS=1 CUDA_VISIBLE_DEVICES=0 nohup python -m sglang.launch_server --model /models/a --tp=1 --disable-radix-cache > server.log 2>&1 &
echo $! > server.pid
