"""What SGLang changes or will stop taking without refusing the launch: worth knowing before it happens."""

from __future__ import annotations

from specwatch.checks.speculation import algorithm
from specwatch.checks.subject import Answer, Check, Subject, broken, fact
from specwatch.domain import Phase
from specwatch.errors import LaunchError
from specwatch.launch.command import typed_flags
from specwatch.launch.flags import table

_STEPS, _TOPK, _TOKENS = "--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens"
SUCCESSORS = {
    "--cuda-graph-max-bs": "--cuda-graph-max-bs-decode",
    "--cuda-graph-bs": "--cuda-graph-bs-decode",
    "--disable-cuda-graph": "--cuda-graph-backend-decode=disabled",
    "--disable-piecewise-cuda-graph": "--cuda-graph-backend-prefill=disabled",
    "--enable-dp-attention": "--attn-dp-size",
    "--mamba-scheduler-strategy": "--mamba-radix-cache-strategy",
    "--speculative-dflash-draft-window-size": "--speculative-draft-window-size",
}
"""The new names of flags that SGLang still takes, as its own deprecation warnings give them (0.5.14 to 0.5.23)."""


def _deprecated(subject: Subject) -> Answer | None:
    """Flags that this release takes with a warning."""
    flags = table(subject.launch.sglang)
    try:
        typed = [name for name, _ in typed_flags(subject.launch)]
    except LaunchError:
        return None
    old = [name for name in typed if (flag := flags.exact(name)) is not None and flag.deprecated]
    if not old:
        return Answer()
    known = [f"{name} is now {SUCCESSORS[name]}" for name in old if name in SUCCESSORS]
    evidence = tuple(fact("deprecated_flags", name, SUCCESSORS.get(name), f"sglang {flags.release}") for name in old)
    names = {"old": ", ".join(old), "successors": "; ".join(known) or "it has no successor", "release": flags.release}
    return broken("deprecated-flags", None, None, *evidence, **names)


def _adjusted(subject: Subject) -> Answer | None:
    """Sizes that SGLang sets to others than those typed, with a warning only.

    Mirrors srt/arg_groups/speculative_hook.py: _handle_dflash, _handle_dspark and _handle_eagle_family.
    """
    name = algorithm(subject)
    steps, topk, tokens = (_typed(subject, flag) for flag in (_STEPS, _TOPK, _TOKENS))
    if name in ("DFLASH", "DSPARK"):
        forced = {flag: value for flag, value in ((_STEPS, steps), (_TOPK, topk)) if value not in (None, 1)}
        if not forced:
            return Answer()
        forcing = (fact("silent_adjustments", flag, value, "launch") for flag, value in forced.items())
        return broken("forced-to-one", None, None, *forcing, flags=" and ".join(forced), algorithm=name)
    if name in ("EAGLE", "EAGLE3", "STANDALONE") and topk == 1 and steps is not None and tokens is not None:
        if tokens == steps + 1:
            return Answer()
        evidence = (
            fact("silent_adjustments", _TOKENS, tokens, "launch"),
            fact("silent_adjustments", _STEPS, steps, "launch"),
        )
        return broken("tokens-follow-steps", None, None, *evidence, tokens=tokens, steps=steps, used=steps + 1)
    return None


def _typed(subject: Subject, flag: str) -> int | None:
    """A number that somebody typed: a record holds what SGLang made of it."""
    value = subject.launch.values.get(flag.removeprefix("--").replace("-", "_"))
    return value if isinstance(value, int) and not isinstance(value, bool) else None


CHECKS = (
    Check(
        name="deprecated_flags",
        phase=Phase.ARGUMENTS,
        mirrors="srt/server_args.py: ServerArgs.add_cli_args (deprecated actions)",
        run=_deprecated,
        advisory=True,
    ),
    Check(
        name="silent_adjustments",
        phase=Phase.ARGUMENTS,
        mirrors="srt/arg_groups/speculative_hook.py: _handle_eagle_family",
        run=_adjusted,
        advisory=True,
    ),
)
