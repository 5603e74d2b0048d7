#!/bin/sh
# how the example's server was started; the draft comes from another tokenizer family
exec python -m sglang.launch_server \
    --model-path /models/atlas-8b --tp 2 --device cpu \
    --port 31993 --max-total-tokens 4096 \
    --speculative-algo STANDALONE \
    --speculative-draft-model-path /models/sprout-0.3b \
    --speculative-num-steps 3 --speculative-eagle-topk 1 \
    --speculative-num-draft-tokens 4
