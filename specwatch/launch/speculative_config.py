"""vLLM's `--speculative-config '{...}'`, said in SGLang's flags.

vLLM counts the tokens that are drafted; SGLang's `--speculative-num-draft-tokens` counts the one that verification adds
as well. Mirrors vllm/config/speculative.py: SpeculativeConfig.
"""

from __future__ import annotations

import json

FLAG = "--speculative-config"
_WITH_MODEL = {"draft_model": "STANDALONE", "dflash": "DFLASH", "eagle": "EAGLE", "eagle3": "EAGLE3"}
_MOST_TOKENS = 1000

Flags = tuple[tuple[str, tuple[str, ...]], ...]


def said_in_flags(text: str) -> Flags:
    """The flags of SGLang for a configuration; none where it has no counterpart or is not understood."""
    try:
        config = json.loads(text)
    except ValueError:
        return ()
    if not isinstance(config, dict):
        return ()
    method, model, tokens = config.get("method"), config.get("model"), config.get("num_speculative_tokens")
    if not isinstance(method, str) or type(tokens) is not int or not 0 < tokens < _MOST_TOKENS:
        return ()
    algorithm = "EAGLE" if method == "mtp" or method.endswith("_mtp") else _WITH_MODEL.get(method)
    draft: Flags = ()
    if method in _WITH_MODEL:
        if not isinstance(model, str) or not model:
            return ()
        draft = (("--speculative-draft-model-path", (model,)),)
    if algorithm is None:
        return ()
    chain: Flags = (("--speculative-num-steps", (str(tokens),)), ("--speculative-eagle-topk", ("1",)))
    return (
        ("--speculative-algorithm", (algorithm,)),
        *draft,
        *(() if algorithm == "DFLASH" else chain),
        ("--speculative-num-draft-tokens", (str(tokens + 1),)),
    )
