"""Ask specwatch and the real SGLang about fresh random launches, and print every disagreement.

    python tools/compare_real.py --seed 1 --cases 200 --real "PYTHON run_cases.py"

`--real` is a command that takes a file of cases, one JSON object a line with `case`, `mode` (args or worker), `argv`
and `env`, and prints the same objects with `ok`, `exception` and `message` added, in a folder where the models'
relative paths start. It runs in an environment in which that SGLang imports; specwatch needs none of it. The same seed
gives the same launches and model folders. Exit code 1 where the two disagree in a verdict or a message.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

from launch_variety import RELEASE, any_flag, in_a_file, respelled

from specwatch.checks import examine, refusal
from specwatch.checks.parsing import reader
from specwatch.domain import Status
from specwatch.errors import LaunchError
from specwatch.launch.command import parse
from specwatch.models.files import LocalModels

Json = dict[str, Any]
FAMILIES = (
    ("Qwen3ForCausalLM", "qwen3"),
    ("LlamaForCausalLM", "llama"),
    ("Qwen2ForCausalLM", "qwen2"),
    ("MistralForCausalLM", "mistral"),
    ("Gemma2ForCausalLM", "gemma2"),
    ("GPT2LMHeadModel", "gpt2"),
)


class Folder:
    """Writes tiny model folders and remembers their names."""

    def __init__(self, root: Path, dice: random.Random) -> None:
        self.root, self.dice, self.count = root, dice, 0

    def write(self, kind: str, config: Json, tokens: int, added: Mapping[str, int], fc: tuple[int, int] | None) -> str:
        self.count += 1
        folder = self.root / f"{kind}-{self.count}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config))
        if tokens:
            vocab = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"t{n}": n for n in range(3, tokens)}
            special = [
                {"id": n, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
                | {"special": True}
                for word, n in added.items()
            ]
            model = {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}
            empty = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
            whole = {"version": "1.0", **empty, "added_tokens": special, "pre_tokenizer": {"type": "Whitespace"}}
            (folder / "tokenizer.json").write_text(json.dumps({**whole, "model": model}))
            (folder / "tokenizer_config.json").write_text(
                json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"})
            )
        if fc:
            header = {"fc.weight": {"dtype": "BF16", "shape": list(fc), "data_offsets": [0, 2 * fc[0] * fc[1]]}}
            text = json.dumps(header).encode()
            (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(2 * fc[0] * fc[1]))
        return str(folder.relative_to(self.root.parent))


def pick(dice: random.Random, usual: Any, *odd: Any, share: float = 0.8) -> Any:
    """The usual value mostly, else one of the odd ones."""
    return usual if dice.random() < share or not odd else dice.choice(odd)


def text_config(dice: random.Random, family: tuple[str, str], vocab: int, layers: int) -> Json:
    architecture, kind = family
    config: Json = {
        "architectures": [architecture],
        "model_type": kind,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": pick(dice, 2, 1, 4),
        "head_dim": 8,
        "vocab_size": vocab,
        "max_position_embeddings": pick(dice, 4096, 2048, 8192, 32768, share=0.7),
        "torch_dtype": "bfloat16",
    }
    if dice.random() < 0.08:
        config.pop("vocab_size")
    if dice.random() < 0.1:
        config["rope_scaling"] = dice.choice(
            (
                {"rope_type": "linear", "factor": 2.0},
                {"rope_type": "yarn", "factor": 4.0},
                {"rope_type": "dynamic", "factor": 2.0},
            )
        )
    if dice.random() < 0.05:
        config["padded_vocab_size"] = 128
    return config


def dflash_draft(dice: random.Random, vocab: int, target_layers: int) -> tuple[Json, tuple[int, int] | None]:
    config = text_config(dice, ("DFlashDraftModel", "qwen3"), vocab, 2)
    inner: Json = {"target_layer_ids": sorted(dice.sample(range(max(target_layers, 4) + pick(dice, 0, 3)), 2))}
    if dice.random() < 0.15:
        inner.pop("target_layer_ids")
    if dice.random() < 0.7:
        inner["mask_token_id"] = pick(
            dice, dice.randrange(vocab), vocab, vocab + 5, -1, "7", None, True, 7.0, share=0.6
        )
    if dice.random() < 0.4:
        inner["mask_token"] = pick(dice, "<|MASK|>", "[MASK]", "t5", "", None, 3, share=0.6)
    config |= {
        "block_size": pick(dice, 8, 4, 0, "8", None, "x"),
        "num_target_layers": pick(dice, target_layers, 36, 4, 0),
    }
    config["dflash_config"] = pick(dice, inner, "x", {}, None, share=0.94)
    ids = inner.get("target_layer_ids") if isinstance(config["dflash_config"], dict) else None
    width = 32 * (len(ids) if ids else 2)
    return config, pick(dice, (32, width), (32, 96), None, share=0.7)


def dspark_draft(dice: random.Random, vocab: int, target_layers: int) -> tuple[Json, None]:
    config, _ = dflash_draft(dice, vocab, target_layers)
    config["architectures"] = ["Qwen3DSparkModel"]
    config |= {
        "markov_rank": pick(dice, 4, 0, -1, None),
        "markov_head_type": pick(dice, "vanilla", "gated", "rnn", "lstm", None),
    }
    if dice.random() < 0.3:
        config["dspark_noise_token_id"] = pick(dice, 7, vocab, -1)
    return config, None


def launches(root: Path, seed: int, count: int) -> Iterator[Json]:
    """The cases of a seed, their model folders written below `root`/models."""
    dice = random.Random(seed)
    folder = Folder(root / "models", dice)
    for number in range(count):
        vocab, layers = dice.choice((100, 101, 128, 151936)), dice.choice((4, 8, 8, 8, 36))
        family = pick(dice, FAMILIES[0], *FAMILIES[1:], share=0.5)
        tokens = min(pick(dice, 90, 99, 100, 104), vocab if vocab > 104 else 104)
        added = {pick(dice, "<|MASK|>", "[MASK]"): tokens} if dice.random() < 0.2 else {}
        target = folder.write("target", text_config(dice, family, vocab, layers), tokens, added, None)
        algorithm = dice.choice(
            ("STANDALONE", "STANDALONE", "DFLASH", "DFLASH", "DFLASH", "DSPARK", "EAGLE3", "EAGLE", "NGRAM")
        )
        argv = [
            "--device",
            "cuda",
            "--model-path",
            target,
            "--speculative-algorithm",
            pick(dice, algorithm, algorithm.lower()),
        ]
        own_vocab = pick(dice, vocab, 100, 128, 101, share=0.6)
        if algorithm in ("STANDALONE", "EAGLE", "EAGLE3"):
            config, fc = text_config(dice, pick(dice, family, *FAMILIES, share=0.7), own_vocab, 2), None
            if algorithm == "EAGLE3":
                config["architectures"] = ["LlamaForCausalLMEagle3"]
                config["model_type"] = "llama"
        elif algorithm == "DSPARK":
            config, fc = dspark_draft(dice, own_vocab, layers)
        else:
            config, fc = dflash_draft(dice, own_vocab, layers)
        if algorithm != "NGRAM" and dice.random() < 0.95:
            argv += ["--speculative-draft-model-path", folder.write("draft", config, pick(dice, tokens, 0, 64), {}, fc)]
        argv += list(more_flags(dice, algorithm))
        if dice.random() < 0.3:
            argv += list(general_flags(dice))
        while dice.random() < 0.3:
            argv += any_flag(dice)
        if dice.random() < 0.15:
            argv = respelled(dice, argv)
        if dice.random() < 0.1:
            argv = in_a_file(dice, argv, root, f"{seed}-{number}")
        env = {name: dice.choice(values) for name, values in ENVIRONMENT.items() if dice.random() < 0.03}
        # without a draft path the worker mode builds no draft worker, which a real start does
        own_draft = algorithm in ("EAGLE", "EAGLE3") and "--speculative-draft-model-path" not in argv
        mode = "args" if algorithm == "NGRAM" or own_draft else "worker"
        yield {"case": f"{seed}.{number}", "mode": mode, "argv": argv, "env": env}


def more_flags(dice: random.Random, algorithm: str) -> Iterator[str]:
    """Flags that change what the checks see."""
    if dice.random() < 0.15:
        yield from ("--context-length", dice.choice(("1024", "2k", "2Ki", "4096", "9000", "0")))
    if dice.random() < 0.15:
        yield from ("--speculative-num-draft-tokens", dice.choice(("4", "8", "9", "16", "1")))
    if dice.random() < 0.12:
        yield from ("--speculative-num-steps", dice.choice(("1", "3", "0")))
    if dice.random() < 0.12:
        yield from ("--speculative-eagle-topk", dice.choice(("1", "2")))
    if algorithm == "DFLASH" and dice.random() < 0.12:
        yield from ("--speculative-dflash-block-size", dice.choice(("8", "4", "0", "16")))
    if dice.random() < 0.08:
        yield from ("--speculative-draft-window-size", dice.choice(("4", "64", "0", "-1")))
    if dice.random() < 0.1:
        override = dice.choice(
            (
                {"vocab_size": 100},
                {"dflash_config": {"mask_token_id": 7}},
                {"dflash_config": {"mask_token_id": 100}},
                {"rms_norm_eps": 1e-5},
                {"max_position_embeddings": 8192},
                {"mask_token_id": 100},
                {"block_size": 4},
                {},
            )
        )
        yield from ("--json-model-override-args", json.dumps(override))
    for flag in (
        "--skip-tokenizer-init",
        "--speculative-use-rejection-sampling",
        "--enable-mixed-chunk",
        "--speculative-adaptive",
    ):
        if dice.random() < 0.04:
            yield flag
    if dice.random() < 0.06:
        yield from ("--page-size", dice.choice(("1", "16")))
    if dice.random() < 0.06:
        yield from ("--tp-size", "2")
        if dice.random() < 0.5:
            yield from ("--attn-dp-size", "2")


ENVIRONMENT: Mapping[str, tuple[str, ...]] = {
    "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": ("1", "0", "true"),
    "SGLANG_RAGGED_VERIFY_MODE": ("static", "compact", "STATIC", ""),
    "SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION": ("1", "0"),
    "SGLANG_ENABLE_PP_SPEC": ("1", "0"),
    "SGLANG_GRPC_PORT": ("0", "40000"),
}
"""Variables that the arguments' rules read."""
GENERAL: tuple[tuple[str, ...], ...] = (
    ("--page-size", "0", "1", "16", "64"),
    ("--chunked-prefill-size", "-1", "0", "100", "4096"),
    ("--schedule-policy", "fcfs", "lpm", "foo"),
    ("--schedule-conservativeness", "0", "-1", "1.2"),
    ("--dtype", "auto", "float16", "float32", "int8"),
    ("--quantization", "fp8", "awq"),
    ("--kv-cache-dtype", "auto", "fp8_e5m2", "fp8_e4m3"),
    ("--attention-backend", "triton", "flashinfer", "torch_native"),
    ("--sampling-backend", "pytorch", "flashinfer"),
    ("--grammar-backend", "xgrammar", "none", "foo"),
    ("--cuda-graph-max-bs-decode", "16", "0", "-1"),
    ("--max-running-requests", "0", "8", "-1"),
    ("--max-total-tokens", "0", "4096"),
    ("--mem-fraction-static", "0.5", "1.5", "0"),
    ("--swa-full-tokens-ratio", "0", "0.5", "2"),
    ("--nnodes", "2"),
    ("--dp-size", "2", "0"),
    ("--pp-size", "2"),
    ("--ep-size", "2"),
    ("--moe-dense-tp-size", "1", "2"),
    ("--base-gpu-id", "-1", "1"),
    ("--gpu-id-step", "0", "2"),
    ("--served-model-name", "a:b", "a"),
    ("--max-lora-rank", "8"),
    ("--lora-target-modules", "q_proj"),
    ("--stream-interval", "0", "2"),
    ("--decode-log-interval", "0", "10"),
    ("--watchdog-timeout", "0", "-1"),
    ("--tool-call-parser", "qwen25", "foo"),
    ("--reasoning-parser", "qwen3", "foo"),
    ("--load-format", "dummy", "foo"),
    ("--tokenizer-mode", "slow", "foo"),
    ("--tokenizer-worker-num", "0", "2"),
    ("--radix-eviction-policy", "lfu", "foo"),
    ("--ssl-certfile", "cert.pem"),
    ("--ssl-keyfile", "key.pem"),
    ("--log-level", "info", "foo", "INFO"),
    ("--dllm-algorithm", "LowConfidence", "foo"),
    ("--grpc-port", "30000", "40000"),
    ("--hicache-ratio", "2", "0.5"),
    ("--prefill-max-requests", "0", "4"),
    ("--enable-lora",),
    ("--enable-torch-compile",),
    ("--disable-radix-cache",),
    ("--enable-hierarchical-cache",),
    ("--disable-overlap-schedule",),
    ("--disable-cuda-graph",),
    ("--disable-cuda-graph-padding",),
    ("--enable-priority-scheduling",),
    ("--enable-pdmux",),
    ("--enable-mis",),
    ("--enable-deterministic-inference",),
    ("--enable-dp-attention",),
    ("--enable-metrics",),
    ("--disaggregation-mode", "prefill", "decode"),
    ("--speculative-draft-attention-backend", "triton"),
    ("--moe-a2a-backend", "deepep", "flashinfer", "none"),
    ("--enable-return-aux-hidden-states",),
    ("--moe-dp-size", "2"),
    ("--attn-cp-size", "2"),
    ("--attn-dp-size", "2", "3"),
    ("--enable-two-batch-overlap",),
    ("--enable-watermark",),
    ("--skip-server-warmup",),
)
"""Flags beside speculation, with some of their values."""


def general_flags(dice: random.Random) -> Iterator[str]:
    """One to three flags that have nothing to do with speculation."""
    for flag, *values in dice.sample(GENERAL, dice.choice((1, 1, 2, 3))):
        yield flag
        if values:
            yield dice.choice(values)


def own_answer(case: Json) -> tuple[str, str | None, str | None]:
    """specwatch's answer: ok, refused or unknown, with exception and message."""
    argv = ["python", "-m", "sglang.launch_server", *case["argv"]]
    models = LocalModels()
    try:
        launch = parse(argv, RELEASE, read_file=reader(models), lenient=True)
    except LaunchError as error:
        return "unknown", None, str(error)
    verdicts = examine(replace(launch, env={**launch.env, **case["env"]}), models)
    if case["mode"] == "args":
        verdicts = tuple(verdict for verdict in verdicts if verdict.phase == "arguments")
    for verdict in verdicts:
        if verdict.status is Status.UNKNOWN:
            return "unknown", None, f"{verdict.check}: {verdict.because}"
        if verdict.status is Status.BROKEN and verdict.message is not None:
            break
    refused = refusal(verdicts)
    return ("refused", refused.exception, refused.message) if refused else ("ok", None, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--real", required=True, metavar="CMD")
    parser.add_argument("--keep", type=Path, help="write the cases and models here and leave them")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = args.keep or Path(temporary)
        root.mkdir(parents=True, exist_ok=True)
        cases = list(launches(root, args.seed, args.cases))
        file = root / "cases.jsonl"
        file.write_text("".join(json.dumps(case) + "\n" for case in cases))
        done = subprocess.run(
            [*shlex.split(args.real), str(file)], cwd=root, capture_output=True, text=True, check=False
        )
        answers = {row["case"]: row for line in done.stdout.split("\n") if line for row in [json.loads(line)]}
        if len(answers) != len(cases):
            sys.exit(f"the real SGLang answered {len(answers)} of {len(cases)}: {done.stderr[-2000:]}")
        with chdir(root):
            sys.exit(compare(cases, answers))


def compare(cases: list[Json], answers: Mapping[str, Json]) -> int:
    counts = {"agree": 0, "verdict": 0, "message": 0, "unknown": 0}
    for case in cases:
        real = answers[case["case"]]
        verdict, exception, message = own_answer(case)
        expected = "ok" if real["ok"] else "refused"
        if verdict == "unknown":
            kind = "unknown"
        elif verdict != expected:
            kind = "verdict"
        else:
            same = (
                expected == "ok"
                or exception == "SystemExit"
                or (exception, message) == (real["exception"], real["message"])
            )
            kind = "agree" if same else "message"
        counts[kind] += 1
        if kind != "agree":
            env = " ".join(f"{k}={v}" for k, v in case["env"].items())
            print(f"{case['case']} {kind}: {env} {shlex.join(case['argv'])}")
            place = real.get("where") or ""
            print(f"    real: {expected} {real['exception'] or ''} {(real['message'] or '')[:300]!r} {place}")
            print(f"    own:  {verdict} {exception or ''} {(message or '')[:300]!r}")
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return 1 if counts["verdict"] or counts["message"] else 0


if __name__ == "__main__":
    main()
