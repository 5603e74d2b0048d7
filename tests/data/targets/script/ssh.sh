#!/bin/bash
# the second machine
ssh gpu02 "cd /opt/sglang && CUDA_VISIBLE_DEVICES=1 ./venv/bin/python -m sglang.launch_server --model-path /models/b --tp 1 --port 30001"
