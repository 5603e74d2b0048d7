"""Words for flags that are not SGLang's, or not this release's: what people type, and what they mean by it."""

from __future__ import annotations

FOREIGN = {
    "--data-parallel": "--dp-size",
    "--dist-init-method": "--dist-init-addr",
    "--distributed-init-method": "--dist-init-addr",
    "--draft-model": "--speculative-draft-model-path",
    "--draft-model-path": "--speculative-draft-model-path",
    "--enforce-eager": "--disable-cuda-graph",
    "--gpu-memory-utilization": "--mem-fraction-static",
    "--guided-decoding-backend": "--grammar-backend",
    "--hf-overrides": "--json-model-override-args",
    "--limit-mm-per-prompt": "--limit-mm-data-per-request",
    "--lora-modules": "--lora-paths",
    "--max-concurrency": "--max-running-requests",
    "--max-context-length": "--context-length",
    "--max-loras": "--max-loras-per-batch",
    "--max-model-len": "--context-length",
    "--max-num-batched-tokens": "--chunked-prefill-size",
    "--max-num-seqs": "--max-running-requests",
    "--max-seq-len": "--context-length",
    "--max-sequence-length": "--context-length",
    "--model-id": "--model-path",
    "--model-name": "--served-model-name",
    "--no-enable-prefix-caching": "--disable-radix-cache",
    "--num-nodes": "--nnodes",
    "--num-shard": "--tp-size",
    "--num-speculative-tokens": "--speculative-num-draft-tokens",
    "--pipeline-parallel": "--pp-size",
    "--seed": "--random-seed",
    "--speculative-model": "--speculative-draft-model-path",
    "--tensor-parallel": "--tp-size",
    "--tokenizer": "--tokenizer-path",
    "--uvicorn-log-level": "--log-level-http",
}
"""Flags that people bring from other servers, and the nearest one of SGLang."""

NEEDLESS = {
    "--disable-frontend-multiprocessing": "SGLang needs no such flag",
    "--disable-log-requests": "SGLang logs no requests unless --log-requests is given",
    "--disable-log-stats": "SGLang needs no such flag",
    "--distributed-executor-backend": "SGLang starts its own processes",
    "--enable-auto-tool-choice": "--tool-call-parser alone switches tool calls on",
    "--enable-chunked-prefill": "SGLang prefills in chunks by default",
    "--enable-prefix-caching": "SGLang caches prefixes by default",
    "--enable-reasoning": "--reasoning-parser alone switches reasoning on",
    "--swap-space": "SGLang has no swap space of this kind",
    "--worker-use-ray": "SGLang starts its own processes",
}
"""Flags of other servers that SGLang needs no counterpart for, and why."""

RENAMED = {
    "--cuda-graph-bs": "--cuda-graph-bs-decode",
    "--cuda-graph-max-bs": "--cuda-graph-max-bs-decode",
    "--mamba-scheduler-strategy": "--mamba-radix-cache-strategy",
    "--max-micro-batch-size": "--pp-max-micro-batch-size",
    "--nsa-decode-backend": "--dsa-decode-backend",
    "--nsa-prefill-backend": "--dsa-prefill-backend",
    "--oltp-traces-endpoint": "--otlp-traces-endpoint",
    "--piecewise-cuda-graph-max-tokens": "--cuda-graph-max-bs-prefill",
    "--piecewise-cuda-graph-tokens": "--cuda-graph-bs-prefill",
    "--speculative-dflash-draft-window-size": "--speculative-draft-window-size",
    "--stream-output": "--incremental-streaming-output",
}
"""Flags of older releases and their later names; read backwards, the older names of new flags."""

SPELLED_OUT: dict[tuple[str, str | None], tuple[tuple[str, str | None], ...]] = {
    ("--disable-piecewise-cuda-graph", None): (("--cuda-graph-backend-prefill", "disabled"),),
    ("--enable-flashinfer-mla", None): (("--attention-backend", "flashinfer"),),
    ("--enable-flashmla", None): (("--attention-backend", "flashmla"),),
    ("--enable-deepep-moe", None): (("--moe-a2a-backend", "deepep"),),
    ("--enable-flashinfer-cutlass-moe", None): (("--moe-runner-backend", "flashinfer_cutlass"),),
    ("--enable-flashinfer-cutedsl-moe", None): (("--moe-runner-backend", "flashinfer_cutedsl"),),
    ("--enable-flashinfer-trtllm-moe", None): (("--moe-runner-backend", "flashinfer_trtllm"),),
    ("--enable-flashinfer-mxfp4-moe", None): (("--moe-runner-backend", "flashinfer_mxfp4"),),
    ("--enable-triton-kernel-moe", None): (("--moe-runner-backend", "triton_kernel"),),
    ("--cuda-graph-backend-decode", "disabled"): (("--disable-cuda-graph", None),),
    ("--disable-decode-cuda-graph", None): (("--disable-cuda-graph", None),),
    ("--cuda-graph-backend-prefill", "disabled"): (("--disable-piecewise-cuda-graph", None),),
    ("--disable-prefill-cuda-graph", None): (("--disable-piecewise-cuda-graph", None),),
    ("--attn-dp-size", "*"): (("--dp-size", "*"), ("--enable-dp-attention", None)),
    ("--attention-data-parallel-size", "*"): (("--dp-size", "*"), ("--enable-dp-attention", None)),
}
"""SGLang's own flags that another release says with other flags and values; `*` stands for the value that was typed."""
