"""Another draft: one on this machine that fits the target."""

from __future__ import annotations

from collections.abc import Iterator

from specwatch.checks.subject import Subject, Unreadable
from specwatch.domain import Applicability
from specwatch.fixes.proposal import Proposal, Request, edited
from specwatch.launch.command import removal, setting

FLAG = "--speculative-draft-model-path"
OFFERED = 3  # further candidates are named by `specwatch drafts`


def matching_draft(ask: Request) -> Iterator[Proposal]:
    """Use a draft found on this machine whose files fit the target, smallest first.

    The outputs stay the target's, but another model runs beside it: a person has to agree.
    """
    launch = ask.launch
    if launch is None:
        return
    subject = Subject(launch, ask.models)
    try:
        target = subject.target()
    except Unreadable:
        return
    exclude = tuple(path for path in (subject.draft_path,) if path)
    found = ask.models.drafts(
        subject.target_path,
        target=target,
        algorithm=subject.algorithm or "",
        revision=launch.text_value("revision"),
        exclude=exclude,
    )
    fitting = [candidate for candidate in found if candidate.fits]
    for candidate in fitting[:OFFERED]:
        why = f"{candidate.path or candidate.host_path} has the same {candidate.vocab_size} tokens"
        if subject.algorithm != "STANDALONE":
            why = f"{candidate.path or candidate.host_path} is made for such a target"
        if candidate.path is None:
            change = setting(launch, FLAG, candidate.host_path)
            reason = f"no --path-map tells under which path the server sees {candidate.host_path}"
            yield Proposal(changes=(change,), why=why, ceiling=Applicability.MANUAL, because=reason)
            continue
        changes = (setting(launch, FLAG, candidate.path),)
        # a revision or a config file of the old draft means nothing for another one
        stale = ("--speculative-draft-model-revision", "--decrypted-draft-config-file")
        yield edited(launch, changes + removal(launch, stale), why, ceiling=Applicability.REVIEW)
