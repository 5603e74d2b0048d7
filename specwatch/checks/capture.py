"""Does the target's class let this kind of draft listen to its layers? A release supports some architectures only."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from specwatch.checks.subject import Answer, Check, Subject, broken, fact
from specwatch.domain import Phase
from specwatch.releases import is_release, older

NAME = "capture_hook"
HOOKS = {"EAGLE3": ("eagle3",), "DFLASH": ("dflash",), "DSPARK": ("dspark", "dflash")}


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "capture_hooks.json").read_bytes())
    return table


def has_hook(architecture: str, hook: str, release: str) -> bool | None:
    """Whether a release's class of an architecture has a capture hook; None where the table cannot tell.

    Between two releases of the table the answer is known only if both agree.
    """
    table = _table()
    row = table["architectures"].get(architecture)
    if row is None:
        return None
    marks: str = row[table["hooks"].index(hook)]
    releases: list[str] = table["releases"]
    wanted = release if is_release(release) else releases[-1]
    before = [mark for mark, known in zip(marks, releases, strict=True) if not older(wanted, known)]
    after = [mark for mark, known in zip(marks, releases, strict=True) if not older(known, wanted)]
    near = {before[-1] if before else after[0], after[0] if after else before[-1]}
    return near == {"1"} if len(near) == 1 and near != {"-"} else None


def _capture(subject: Subject) -> Answer | None:
    hooks = HOOKS.get(subject.algorithm or "")
    if hooks is None or (subject.algorithm == "EAGLE3" and subject.draft_path is None):
        return None  # an EAGLE3 target that is its own draft is not asked for the hook
    target = subject.target()
    architecture = target.architectures[0] if target.architectures else ""
    answers = [has_hook(architecture, hook, subject.launch.sglang) for hook in hooks]
    evidence = (fact(NAME, "target architecture", architecture, target.source),)
    if any(answers):
        return Answer(evidence=evidence)
    if None in answers:
        release = subject.launch.sglang or "this release"
        return Answer(unknown=f"whether sglang {release} has a {hooks[0]} hook for {architecture or 'this target'}")
    if subject.algorithm == "EAGLE3":
        message = (
            f"Model {architecture} does not implement set_eagle3_layers_to_capture, which EAGLE3 aux hidden-state "
            "capture requires."
        )
    else:
        message = (
            f"Model {architecture} implements neither set_dspark_layers_to_capture nor set_dflash_layers_to_capture, "
            "one of which is required for DFLASH/DSPARK."
        )
    return broken(
        "target-cannot-be-captured",
        "ValueError",
        message,
        *evidence,
        architecture=architecture,
        algorithm=subject.algorithm,
    )


CHECKS = (
    Check(
        name=NAME,
        phase=Phase.WORKER,
        mirrors="srt/model_executor/model_runner_components/attention_backend_setup.py: "
        "configure_aux_hidden_state_capture",
        run=_capture,
    ),
)
