"""`specwatch drafts`: everything on this machine that could draft for a target, and why the rest does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specwatch.checks import examine, refusal
from specwatch.commands.common import path_maps, print_lines, say, width
from specwatch.commands.contract import Exit
from specwatch.domain import Status
from specwatch.errors import ModelError
from specwatch.launch.command import parse
from specwatch.models.base import Candidate
from specwatch.models.files import LocalModels
from specwatch.report.text import Line, Piece, clean

# In the order in which they are offered: the heads trained for one target first, they draft best.
ALGORITHMS = ("DSPARK", "DFLASH", "EAGLE3", "EAGLE", "STANDALONE")
PADDED = {(151936, 152064), (152064, 151936)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The arguments of the command."""

    target: str
    path_map: Sequence[str] = ()
    models_dir: Sequence[Path] = ()
    algorithm: str = ""
    json: bool = False
    sglang: str = ""
    online: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A candidate under one algorithm; `flags` start it, `because` says why it does not fit."""

    algorithm: str
    candidate: Candidate
    because: str
    flags: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether every check passes with it."""
        return not self.because


def run(options: Options) -> Exit:
    """Print the drafts for a target; exit 1 where none but NGRAM fits."""
    models = LocalModels(
        path_maps=path_maps(options.path_map),
        models_dirs=tuple(str(folder) for folder in options.models_dir),
        online=options.online,
    )
    drafts = tuple(_drafts(options, models))
    if options.json:
        _print_json(options.target, drafts)
    else:
        print_lines(_page(options.target, drafts))
    fitting = sum(draft.fits for draft in drafts)
    say(f"{fitting} of {len({draft.candidate.host_path for draft in drafts})} models on this machine fit")
    return Exit.CLEAN if fitting else Exit.FINDINGS


def _drafts(options: Options, models: LocalModels) -> Iterator[Draft]:
    """For each model the one algorithm that it could serve, or the reason why not, fitting ones first."""
    target = models.config(options.target)
    best: dict[str, Draft] = {}
    wanted = (options.algorithm.upper(),) if options.algorithm else ALGORITHMS
    for algorithm in wanted:
        for candidate in models.drafts(options.target, target=target, algorithm=algorithm):
            draft = _judged(options, models, algorithm, candidate)
            known = best.get(candidate.host_path)
            if (
                known is None
                or (draft.fits and not known.fits)
                or (not known.fits and _meant_for(candidate, algorithm))
            ):
                best[candidate.host_path] = draft
    yield from sorted(best.values(), key=lambda draft: (not draft.fits, ALGORITHMS.index(draft.algorithm)))


def _meant_for(candidate: Candidate, algorithm: str) -> bool:
    """Whether a model's architecture is of the kind that an algorithm takes: its reason is the one worth showing."""
    name = candidate.architectures[0].lower() if candidate.architectures else ""
    head = next((kind for kind in ("dspark", "dflash", "eagle3", "eagle") if kind in name), "standalone")
    return head == algorithm.lower()


def _judged(options: Options, models: LocalModels, algorithm: str, candidate: Candidate) -> Draft:
    because = candidate.because + _padding(candidate, options, models)
    path = candidate.path
    if because or path is None:
        return Draft(algorithm=algorithm, candidate=candidate, because=because or "no --path-map reaches it")
    flags = ("--speculative-algorithm", algorithm, "--speculative-draft-model-path", path)
    launch = parse(["sglang", "serve", "--model-path", options.target, *flags], options.sglang)
    verdicts = examine(launch, models)
    refused = refusal(verdicts)
    if refused is None:
        refused = next((verdict for verdict in verdicts if verdict.status is Status.BROKEN), None)
    because = (refused.message or f"{refused.cause}: it would start, but draft badly") if refused else ""
    return Draft(algorithm=algorithm, candidate=candidate, because=because, flags=flags)


def _padding(candidate: Candidate, options: Options, models: LocalModels) -> str:
    """Two tables of one tokenizer, padded to different sizes: the commonest near miss."""
    try:
        target = models.config(options.target)
    except ModelError:
        return ""
    if (candidate.vocab_size, target.vocab_size) in PADDED:
        return " (the same tokens, but the tables are padded to different sizes, and SGLang compares the sizes)"
    return ""


def _page(target: str, drafts: Sequence[Draft]) -> Iterator[Line]:
    yield (Piece(f"Drafts for {clean(target)}", "strong"),)
    for draft in drafts:
        place = draft.candidate.path or draft.candidate.host_path
        size = f"{draft.candidate.weight_bytes / 1e6:,.1f} MB" + (" (estimated)" if draft.candidate.estimated else "")
        if draft.fits:
            yield Piece("  fits  ", "safe"), Piece(f"{draft.algorithm:10} {clean(place)}   {size}")
            yield (Piece(f"        {' '.join(draft.flags)}", "command"),)
        else:
            yield Piece("  no    ", "quiet"), Piece(f"{draft.algorithm:10} {clean(place)}")
            for part in _wrapped(clean(draft.because)):
                yield (Piece(f"        {part}", "quiet"),)
    yield Piece("  fits  ", "safe"), Piece("NGRAM      needs no draft model")
    yield (Piece("        --speculative-algorithm NGRAM", "command"),)


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, max(width() - 8, 40))


def _print_json(target: str, drafts: Sequence[Draft]) -> None:
    from specwatch.report.as_json import dumps

    always = [{"algorithm": "NGRAM", "flags": ["--speculative-algorithm", "NGRAM"], "because": "needs no draft model"}]
    print(dumps({"schema": 1, "target": target, "drafts": [_row(draft) for draft in drafts], "always": always}))


def _row(draft: Draft) -> Mapping[str, object]:
    return {
        "path": draft.candidate.path,
        "host_path": draft.candidate.host_path,
        "algorithm": draft.algorithm,
        "fits": draft.fits,
        "because": draft.because,
        "vocab_size": draft.candidate.vocab_size,
        "weight_bytes": draft.candidate.weight_bytes,
        "estimated": draft.candidate.estimated,
        "flags": list(draft.flags),
    }
