"""`--gpu` as a user gives it: what hangs on the kind of GPU is then known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Run = Callable[..., "CompletedProcess[str]"]
FLAGS = ["--attention-backend", "trtllm_mha"]


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "num_attention_heads": 8,
                "num_hidden_layers": 2,
                "hidden_size": 64,
                "vocab_size": 128,
                "max_position_embeddings": 4096,
            }
        )
    )
    return str(tmp_path)


def test_check_tells_what_a_gpu_does_not_have(specwatch: Run, model: str) -> None:
    command = ["--sglang", "0.5.23", "--format", "json", "--", "sglang", "serve", "--model-path", model, *FLAGS]
    refused = specwatch("check", "--gpu", "A100", *command)
    assert refused.returncode == 1, refused.stderr
    (finding,) = json.loads(refused.stdout)["findings"]
    assert finding["rule"] == "trtllm-attention-on-this-gpu"
    assert finding["fixes"]
    assert specwatch("check", "--gpu", "NVIDIA H100 80GB HBM3", *command).returncode == 0
    assert specwatch("check", *command).returncode == 0


def test_a_gpu_that_nobody_knows_is_refused(specwatch: Run) -> None:
    done = specwatch("check", "--gpu", "foo", "--", "sglang", "serve", "--model-path", "m")
    assert done.returncode == 2
    assert "H100" in done.stderr


TREE = (
    "python -m sglang.launch_server --model-path {model} --page-size 16 --speculative-algorithm EAGLE "
    "--speculative-draft-model-path {model} --speculative-num-steps 3 --speculative-eagle-topk 4 "
    "--speculative-num-draft-tokens 8"
)
LOG = """\
Traceback (most recent call last):
  File "/opt/sglang/srt/arg_groups/speculative_hook.py", line 1278, in _handle_eagle_family
    raise ValueError(
ValueError: speculative_eagle_topk > 1 with page_size > 1 is only supported on ('flashinfer', 'fa3', 'triton'); got \
attention_backend='aiter'. Use page_size == 1 or one of those backends.
"""


@pytest.mark.parametrize(("gpu", "status"), [([], "unknown"), (["--gpu", "MI300X"], "broken")])
def test_diagnose_proves_with_a_gpu_what_it_cannot_without(
    specwatch: Run, model: str, tmp_path: Path, gpu: list[str], status: str
) -> None:
    log = tmp_path / "server.log"
    log.write_text(LOG)
    launch = ["--launch", TREE.format(model=model), "--sglang", "0.5.23"]
    done = specwatch("diagnose", str(log), *launch, *gpu, "--format", "json")
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["verdict"]["status"] == status
    assert finding["fixes"][0]["applicability"] == ("safe" if gpu else "review")
