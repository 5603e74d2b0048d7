"""Launch commands in the shapes in which people keep them; each with some values and the environment it gives."""

from __future__ import annotations

from typing import Any, NamedTuple


class Sample(NamedTuple):
    name: str
    text: str
    values: dict[str, Any]
    env: dict[str, str]


SAMPLES = [
    Sample(
        "one-line",
        "python -m sglang.launch_server --model-path /models/a --tp 2 --trust-remote-code",
        {"model_path": "/models/a", "tp_size": 2, "trust_remote_code": True},
        {},
    ),
    Sample(
        "continuations",
        "python3 -m sglang.launch_server \\\n  --model-path /models/a \\\n  --tp-size 4 \\\n"
        "  --speculative-algorithm EAGLE \\\n  --speculative-num-steps 3\n",
        {"tp_size": 4, "speculative_algorithm": "EAGLE", "speculative_num_steps": 3},
        {},
    ),
    Sample(
        "env-prefix",
        "CUDA_VISIBLE_DEVICES=0,1 SGLANG_ENABLE_SPEC_V2=1 python3 -u -m sglang.launch_server --model-path /m/a --tp=2",
        {"model_path": "/m/a", "tp_size": 2},
        {"CUDA_VISIBLE_DEVICES": "0,1", "SGLANG_ENABLE_SPEC_V2": "1"},
    ),
    Sample(
        "env-command",
        "env FOO=1 BAR='a b' nohup python -m sglang.launch_server --model /m/a > /var/log/sglang.log 2>&1 &",
        {"model_path": "/m/a"},
        {"FOO": "1", "BAR": "a b"},
    ),
    Sample(
        "tee",
        "exec numactl --cpunodebind=0 --membind=0 python -m sglang.launch_server --model-path /m/a --port 30001 "
        "2>&1 | tee -a server.log",
        {"port": 30001},
        {},
    ),
    Sample(
        "docker-run",
        "docker run -d --rm --gpus all --shm-size 32g -p 30000:30000 -v /models:/models -e HF_TOKEN=abc "
        "--env NCCL_DEBUG=INFO --ipc=host lmsysorg/sglang:v0.5.23 python3 -m sglang.launch_server "
        "--model-path /models/a --host 0.0.0.0 --tp 2",
        {"model_path": "/models/a", "host": "0.0.0.0", "tp_size": 2},
        {"HF_TOKEN": "abc", "NCCL_DEBUG": "INFO"},
    ),
    Sample(
        "docker-lines",
        "docker run --gpus all \\\n    -e SGLANG_X=1 \\\n    --entrypoint python3 \\\n    lmsysorg/sglang:latest \\\n"
        "    -m sglang.launch_server \\\n    --model-path /models/a \\\n    --mem-fraction-static 0.8\n",
        {"mem_fraction_static": 0.8},
        {"SGLANG_X": "1"},
    ),
    Sample(
        "docker-bash-c",
        'docker exec -it -e A=1 sgl bash -lc "cd /opt && SGLANG_B=2 sglang serve /models/a --tp 2 '
        '--json-model-override-args \'{\\"rope_scaling\\": null}\' 2>&1 | tee /tmp/x.log"',
        {"model_path": "/models/a", "tp_size": 2, "json_model_override_args": '{"rope_scaling": null}'},
        {"A": "1", "SGLANG_B": "2"},
    ),
    Sample(
        "podman",
        "DOCKER_HOST=unix:///x podman run --device nvidia.com/gpu=all docker.io/lmsysorg/sglang sglang serve "
        "--model-path /m/a",
        {"model_path": "/m/a"},
        {},
    ),
    Sample(
        "compose-folded",
        "python3 -m sglang.launch_server\n--model-path /models/a\n--host 0.0.0.0\n--port 30000\n"
        "--chunked-prefill-size -1\n",
        {"port": 30000, "chunked_prefill_size": -1},
        {},
    ),
    Sample(
        "compose-flags",
        "--model-path /models/a --speculative-algo NGRAM --speculative-num-draft-tokens 8",
        {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 8},
        {},
    ),
    Sample(
        "systemd",
        "/opt/venv/bin/python -m sglang.launch_server --model-path /models/a \\\n"
        "    --served-model-name 'my model' \\\n"
        "    --log-level info",
        {"served_model_name": "my model", "log_level": "info"},
        {},
    ),
    Sample(
        "script",
        "#!/usr/bin/env bash\n# serves a\nset -euo pipefail\nexport NCCL_DEBUG=WARN SGLANG_A=1\n"
        "MODEL=/models/a\nTP=2\n\n"
        'exec python3 -m sglang.launch_server \\\n  --model-path "$MODEL" \\\n  --tp ${TP} \\\n'
        "  --context-length 32k  # as trained\n",
        {"model_path": "/models/a", "tp_size": 2, "context_length": 32000},
        {"NCCL_DEBUG": "WARN", "SGLANG_A": "1"},
    ),
    Sample(
        "script-extra-args",
        "EXTRA='--tp 2 --enable-metrics'\npython -m sglang.launch_server --model-path /m/a $EXTRA --port 1\n",
        {"tp_size": 2, "enable_metrics": True, "port": 1},
        {},
    ),
    Sample(
        "script-if",
        'if [ "$1" = go ]; then\n  echo "python -m sglang.launch_server is next"\n'
        "  pkill -f sglang.launch_server || true\n"
        "  python -m sglang.launch_server --model-path /m/a\nfi\n",
        {"model_path": "/m/a"},
        {},
    ),
    Sample(
        "sudo-timeout",
        "sudo -E -u llm FOO=1 timeout 2h nice -n 5 taskset -c 0-31 python -m sglang.launch_server --model-path /m/a",
        {"model_path": "/m/a"},
        {"FOO": "1"},
    ),
    Sample(
        "srun-bash",
        "srun -N1 --gpus=8 bash -c 'export NCCL_IB_HCA=mlx5; python -m sglang.launch_server --model-path /m/a "
        "--nnodes 2 "
        "--node-rank $SLURM_NODEID --dist-init-addr $HEAD:5000'",
        {},
        {"NCCL_IB_HCA": "mlx5"},
    ),
    Sample(
        "kubectl",
        "kubectl run sgl --image=lmsysorg/sglang --env=K8S=1 --command -- python3 -m sglang.launch_server "
        "--model-path /models/a --api-key $(API_KEY)",
        {"model_path": "/models/a"},
        {"K8S": "1"},
    ),
    Sample(
        "torchrun",
        "torchrun --nproc_per_node 1 -m sglang.launch_server --model-path /m/a --lora-paths l1=/x l2=/y --tp 2",
        {"lora_paths": ["l1=/x", "l2=/y"], "tp_size": 2},
        {},
    ),
    Sample(
        "path-to-script",
        "nohup python /opt/sglang/python/sglang/launch_server.py --model-path=/m/a "
        "--no-lora-strict-loading </dev/null &",
        {"model_path": "/m/a", "lora_strict_loading": False},
        {},
    ),
    Sample(
        "repeated",
        "sglang serve --model-path /m/a --tp 1 --trust-remote-code --tensor-parallel-size 2",
        {"tp_size": 2, "trust_remote_code": True},
        {},
    ),
    Sample(
        "tmux",
        "tmux new -d -s sgl 'CUDA_VISIBLE_DEVICES=3 python -m sglang.launch_server --model-path /m/a'",
        {"model_path": "/m/a"},
        {"CUDA_VISIBLE_DEVICES": "3"},
    ),
    Sample(
        "heredoc-before",
        'cat > /tmp/c.json <<\'EOF\'\n{"a": "it\'s"}\nEOF\npython -m sglang.launch_server --model-path /m/a --port 2\n',
        {"port": 2},
        {},
    ),
]
