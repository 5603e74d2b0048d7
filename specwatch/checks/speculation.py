"""What SGLang refuses of every speculative launch before it comes to the algorithm's own rules.

Mirrors srt/arg_groups/speculative_hook.py: handle_speculative_decoding, in its order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from specwatch.checks.laws import Doubt, Law, law_check
from specwatch.checks.subject import Subject
from specwatch.errors import ModelError
from specwatch.releases import older

ALGORITHMS: Mapping[str, str] = MappingProxyType(
    {
        "EAGLE": "",
        "EAGLE3": "",
        "NEXTN": "",
        "NONE": "0.5.7",
        "STANDALONE": "0.5.2",
        "NGRAM": "0.5.4",
        "DFLASH": "0.5.11",
        "FROZEN_KV_MTP": "0.5.12",
        "DSPARK": "0.5.16",
        "UNO": "0.5.20",
    }
)
"""The names that SGLang knows, and the release that brought each (srt/speculative/spec_info.py)."""

COORDINATION = "SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION"
VERIFY_MODE = "SGLANG_RAGGED_VERIFY_MODE"
VERIFY_MODES = ("static", "cap-accept", "compact")
_GEMMA = frozenset({"Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"})


def algorithms(release: str) -> tuple[str, ...]:
    """The algorithms that a release knows; all of them where the release is unknown."""
    return tuple(name for name, since in ALGORITHMS.items() if not since or not older(release, since))


def algorithm(subject: Subject) -> str | None:
    """The algorithm that comes to run: EAGLE on a Gemma 4 assistant is FROZEN_KV_MTP.

    Mirrors _resolve_speculative_algorithm_alias. A draft that cannot be read is taken for any other one: that it
    cannot be read is said by the check `draft_config`.
    """
    name = subject.algorithm
    if name != "EAGLE" or subject.draft_path is None or not subject.since("0.5.12"):
        return name
    try:
        return "FROZEN_KV_MTP" if _GEMMA & set(subject.draft().architectures) else name
    except ModelError:
        return name


def device(subject: Subject) -> str | None:
    """The kind of device as the launch names it; None where SGLang takes what the machine has."""
    name = subject.launch.text_value("device")
    return name.split(":")[0] if name else None


def _laws(subject: Subject) -> Iterator[Law | Doubt]:
    yield from _decode_radix(subject)
    yield from _block_verification(subject)
    yield from _window(subject)
    yield from _name(subject)


def _decode_radix(subject: Subject) -> Iterator[Law]:
    """Up to 0.5.22 this stood in the rules for disaggregation, which saw the name as it was typed."""
    name: str | None = algorithm(subject)
    allowed: tuple[str | None, ...] = (None, "DSPARK", "EAGLE", "EAGLE3")
    if not subject.since("0.5.23"):
        name = subject.launch.text_value("speculative_algorithm")
        allowed = (None, "DSPARK") if subject.since("0.5.21") else (None,)
    flag = "--disaggregation-decode-enable-radix-cache"
    decode = subject.launch.value("disaggregation_mode") == "decode"
    if decode and subject.launch.is_set("disaggregation_decode_enable_radix_cache") and name not in allowed:
        yield Law(
            cause="radix-cache-on-decode",
            flags=(flag, "--speculative-algorithm"),
            message=f"{flag} is incompatible with speculative decoding (--speculative-algorithm {name})",
            since="0.5.11",
            facts={"algorithm": name},
        )


def _block_verification(subject: Subject) -> Iterator[Law]:
    flag = "--speculative-use-block-verification"
    if not subject.launch.is_set("speculative_use_block_verification"):
        return
    if algorithm(subject) not in ("EAGLE", "EAGLE3", "DFLASH", "DSPARK"):
        yield Law(
            cause="block-verification-algorithm",
            flags=(flag, "--speculative-algorithm"),
            message=f"{flag} only supports EAGLE / EAGLE3 / NEXTN / DFLASH / DSPARK.",
            since="0.5.22",
            facts={"algorithm": algorithm(subject)},
        )
    if device(subject) not in (None, "cuda"):
        yield Law(
            cause="block-verification-device",
            flags=(flag, "--device"),
            message=f"{flag} only supports CUDA or ROCm.",
            since="0.5.22",
            facts={"device": device(subject)},
        )


def _window(subject: Subject) -> Iterator[Law]:
    window, sink = subject.number("speculative_draft_window_size"), subject.number("speculative_draft_sink_size")
    old = subject.number("speculative_dflash_draft_window_size")
    if old is not None and old <= 0 and subject.algorithm == "DFLASH":
        yield Law(
            cause="window-not-positive",
            flags=("--speculative-dflash-draft-window-size",),
            message=f"DFLASH requires --speculative-dflash-draft-window-size to be positive, got {old}.",
            before="0.5.12",
            facts={"window": old},
        )
    if window is not None and window <= 0:
        yield Law(
            cause="window-not-positive",
            flags=("--speculative-draft-window-size",),
            message=f"--speculative-draft-window-size must be positive, got {window}.",
            since="0.5.12",
            facts={"window": window},
        )
    if sink is not None and sink < 0:
        yield Law(
            cause="sink-negative",
            flags=("--speculative-draft-sink-size",),
            message=f"--speculative-draft-sink-size must be non-negative, got {sink}.",
            since="0.5.21",
            facts={"sink": sink},
        )
    if sink is not None and window is None:
        yield Law(
            cause="sink-without-window",
            flags=("--speculative-draft-sink-size", "--speculative-draft-window-size"),
            message="--speculative-draft-sink-size requires --speculative-draft-window-size.",
            since="0.5.21",
            facts={"sink": sink},
        )


def _name(subject: Subject) -> Iterator[Law]:
    """Mirrors srt/speculative/spec_info.py: SpeculativeAlgorithm.from_string. Plugins may register further names."""
    name = "" if subject.launch.value("speculative_algorithm") == "" else subject.algorithm
    if name is None or name in algorithms(subject.launch.sglang):
        return
    facts = {"name": name, "known": ", ".join(algorithms(subject.launch.sglang))}
    flags = ("--speculative-algorithm",)
    old, new = f"Unknown speculative algorithm '{name}'", f"Unknown speculative algorithm name: {name}"
    yield Law(cause="unknown-algorithm", flags=flags, message=old, before="0.5.10", facts=facts)
    yield Law(cause="unknown-algorithm", flags=flags, message=new, since="0.5.10", facts=facts)


def _coordination(subject: Subject) -> Iterator[Law | Doubt]:
    if not subject.env_flag(COORDINATION):
        return
    name, flags = algorithm(subject), (COORDINATION, "--speculative-algorithm")
    several = subject.launch.is_set("enable_multi_layer_eagle")
    if several or name not in ("EAGLE", "EAGLE3"):
        message = "DP spec/prefill coordination requires single-layer EAGLE or EAGLE3"
        yield Law(cause="coordination-without-eagle", flags=flags, message=message, since="0.5.21", before="0.5.22")
    if several or name not in ("EAGLE", "EAGLE3", "DSPARK"):
        message = "DP spec/prefill coordination requires single-layer EAGLE, EAGLE3 or DSPARK"
        yield Law(cause="coordination-without-eagle", flags=flags, message=message, since="0.5.22")


def adaptive(subject: Subject) -> bool:
    """Whether `--speculative-adaptive` stays on: SGLang turns it off, with a warning, where it cannot work.

    Mirrors srt/speculative/adaptive_spec_params.py: adaptive_unsupported_reason.
    """
    launch = subject.launch
    if not launch.is_set("speculative_adaptive") or algorithm(subject) not in ("EAGLE", "EAGLE3"):
        return False
    if subject.number("speculative_eagle_topk") not in (None, 1) or subject.attention_dp():
        return False
    return not any(map(launch.is_set, ("enable_multi_layer_eagle", "enable_two_batch_overlap", "enable_pdmux")))


def _adaptive_steps(release: str) -> list[int]:
    """The candidate steps of adaptive_spec_params.py: DEFAULT_ADAPTIVE_CONFIG, all batch sizes together."""
    if older(release, "0.5.14"):
        return [1, 3, 7]
    return [0, 1, 3, 7] if older(release, "0.5.20") else [0, 1, 3, 5, 7]


def _steps_of_file(subject: Subject, path: str) -> list[int] | Doubt:
    """The step counts that a configuration file allows. Mirrors adaptive_spec_params.py: _load_adaptive_config."""
    flag = "--speculative-adaptive-config"
    try:
        given = json.loads(subject.models.text(path))
    except (ModelError, ValueError, RecursionError) as error:
        return Doubt(f"{path} of {flag} could not be read: {error}")
    entries = [entry for key, entry in given.items() if key.isdigit()] if isinstance(given, dict) else []
    found: set[int] = set()
    for entry in entries:
        steps = entry.get("candidate_steps") if isinstance(entry, dict) else None
        if not isinstance(steps, list) or not steps or not all(isinstance(one, int) and one >= 0 for one in steps):
            return Doubt(f"{path} of {flag} holds an entry that is no list of step counts: {str(steps)[:80]}")
        found.update(steps)
    return sorted(found) or Doubt(f"{path} of {flag} has no entry for any batch size")


def _adaptive(subject: Subject) -> Iterator[Law | Doubt]:
    """Mirrors _init_adaptive_speculative_params."""
    path, steps = subject.launch.text_value("speculative_adaptive_config"), subject.number("speculative_num_steps")
    candidates = _adaptive_steps(subject.launch.sglang) if path is None else _steps_of_file(subject, path)
    if isinstance(candidates, Doubt):
        yield candidates
        return
    if steps is not None and steps not in candidates:
        yield Law(
            cause="steps-not-a-candidate",
            flags=("--speculative-num-steps",),
            message=f"--speculative-num-steps={steps} is not in the adaptive config candidate_steps {candidates}. "
            "Pass one of those values.",
            since="0.5.13",
            facts={
                "steps": steps,
                "candidates": str(candidates),
                "nearest": min(candidates, key=lambda one: (abs(one - steps), -one)),
            },
        )


def _speaks(subject: Subject) -> bool:
    named = (
        *("speculative_algorithm", "speculative_draft_window_size", "speculative_draft_sink_size"),
        "speculative_dflash_draft_window_size",
    )
    given = any(subject.launch.value(name) is not None for name in named)
    return given or subject.launch.is_set("speculative_use_block_verification")


def _verify_mode(subject: Subject) -> Iterator[Law]:
    """Mirrors srt/speculative/ragged_verify.py: read_ragged_verify_mode, which every algorithm goes through."""
    mode = subject.launch.env.get(VERIFY_MODE)
    if mode is not None and mode not in VERIFY_MODES:
        known = ", ".join(repr(one) for one in VERIFY_MODES)
        meant = mode.strip().lower().replace("_", "-")
        yield Law(
            cause="verify-mode-unknown",
            flags=(VERIFY_MODE,),
            message=f"invalid {VERIFY_MODE}={mode!r}; expected one of {known}",
            since="0.5.16",
            facts={"mode": repr(mode), "meant": meant if meant in VERIFY_MODES else None},
        )


CHECKS = (
    law_check(
        "speculation_arguments",
        "srt/arg_groups/speculative_hook.py: handle_speculative_decoding",
        _speaks,
        _laws,
    ),
    law_check(
        "prefill_coordination",
        "srt/arg_groups/speculative_hook.py: handle_speculative_decoding",
        lambda subject: COORDINATION in subject.launch.env,
        _coordination,
    ),
    law_check(
        "adaptive_steps",
        "srt/arg_groups/speculative_hook.py: _init_adaptive_speculative_params",
        adaptive,
        _adaptive,
    ),
    law_check(
        "verify_mode",
        "srt/speculative/ragged_verify.py: read_ragged_verify_mode",
        lambda subject: subject.algorithm is not None and VERIFY_MODE in subject.launch.env,
        _verify_mode,
    ),
)
