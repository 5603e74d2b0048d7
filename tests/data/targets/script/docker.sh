#!/bin/bash
model=/models/deepseek-r1
port=30000
docker run -d --rm --gpus '"device=0,1"' \
    --shm-size 16g \
    -p $port:30000 \
    -v /data/models:/models \
    --env "HF_TOKEN=none" \
    --ipc=host \
    lmsysorg/sglang:v0.5.23 \
    bash -c "python3 -m sglang.launch_server --model-path $model --host 0.0.0.0 --tp-size 2 --mem-fraction-static 0.7"
