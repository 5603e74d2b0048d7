"""Do the variables that simulate acceptance, for benchmarks, hold what SGLang knows?"""

from __future__ import annotations

from specwatch.checks.subject import Answer, Check, Subject, broken, fact
from specwatch.domain import Phase

NAME = "simulated_acceptance"
LENGTH, METHOD, MODE = (f"SGLANG_SIMULATE_ACC_{what}" for what in ("LEN", "METHOD", "TOKEN_MODE"))
_ALGORITHMS = ("EAGLE", "EAGLE3", "STANDALONE", "DFLASH", "DSPARK")


def _simulated(subject: Subject) -> Answer | None:
    env = subject.launch.env
    try:
        length = float(env.get(LENGTH, "-1"))
    except ValueError:
        return None  # SGLang takes its default then, which is off
    if subject.algorithm not in _ALGORITHMS or length <= 0:
        return None
    mode, method = env.get(MODE, "fixed"), env.get(METHOD, "match-expected")
    evidence = (fact(NAME, LENGTH, env[LENGTH], "environment"),)
    if subject.since("0.5.17") and mode not in ("fixed", "real-draft-token"):
        message = f"Invalid {MODE} {mode!r}; expected 'fixed' or 'real-draft-token'."
        return broken("token-mode", "ValueError", message, *evidence, mode=repr(mode))
    if method not in ("multinomial", "match-expected"):
        return broken("method", "ValueError", f"Invalid simulate_acc_method: {method}", *evidence, method=method)
    return Answer(evidence=evidence)


SIMULATION = Check(
    name=NAME,
    phase=Phase.SERVING,
    mirrors="srt/speculative/spec_utils.py: generate_simulated_accept_index",
    run=_simulated,
)
