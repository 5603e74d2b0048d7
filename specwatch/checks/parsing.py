"""Does SGLang's own argument parser take the command? The first thing that a start does."""

from __future__ import annotations

from collections.abc import Callable

from specwatch.checks.subject import Answer, Check, Subject, fact
from specwatch.domain import Phase, Value
from specwatch.errors import LaunchError, ModelError
from specwatch.launch.command import Refused, refused
from specwatch.models.base import Models

NAME = "arguments_parse"
CAUSES = {
    "unrecognized": "unrecognized-arguments",
    "ambiguous": "ambiguous-option",
    "choice": "invalid-choice",
    "value": "invalid-value",
    "no-value": "value-missing",
    "explicit": "switch-with-value",
    "required": "model-missing",
    "no-model": "model-missing",
    "config": "config-file-refused",
    "withdrawn": "flag-withdrawn",
    "other": "argument-refused",
}


def reader(models: Models) -> Callable[[str], str]:
    """How a `--config` file is read: where the models are, with their path maps."""

    def text(path: str) -> str:
        try:
            return models.text(path)
        except ModelError as error:
            raise OSError(str(error)) from error

    return text


def _parse(subject: Subject) -> Answer | None:
    if subject.launch.recorded:
        return None  # the server printed its arguments: the parser took them
    if not subject.launch.argv and not subject.launch.text:
        return None
    try:
        found = refused(subject.launch, reader(subject.models))
    except LaunchError as error:
        return Answer(unknown=str(error))
    if found is None:
        return Answer()
    facts: dict[str, Value] = {
        "arguments": _words(found),
        "flag": found.flag.name if found.flag else found.option,
        "value": found.text,
        "release": found.flags.release,
        "where": "the file of --config" if found.in_file else "the command",
        "message": found.message,
    }
    unnamed = found.kind == "config" and "No config file specified" in found.message
    return Answer(
        cause="config-file-unnamed" if unnamed else CAUSES[found.kind],
        exception=found.exception,
        message=found.said if found.exception == "SystemExit" else found.message,
        evidence=(fact(NAME, "refused by the parser", _words(found) or found.message, "launch"),),
        facts=facts,
    )


def _words(found: Refused) -> str:
    if found.kind in ("unrecognized", "ambiguous", "required"):
        return " ".join(map(str, found.strays)) or found.message.partition(": ")[2]
    return " ".join(filter(None, (found.flag.name if found.flag else found.option, found.text)))


CHECKS = (Check(name=NAME, phase=Phase.ARGUMENTS, mirrors="srt/server_args.py: prepare_server_args", run=_parse),)
