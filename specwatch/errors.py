"""The errors that specwatch raises on purpose; each names what and where, and is shown without a traceback.

SpecwatchError            exit code
├── ConfigError           2   a file, key or option of specwatch's own is wrong
├── RuleError             2   a rule file breaks a law of the rule format
├── LaunchError           2   a launch command does not parse (as given; never one that a log holds)
├── SourceError           3   a log could not be read
├── ApplyError            1   a launch could not be changed, restarted or put back; `retry` says whether to try again
└── ModelError            -   a model file could not be read: becomes the verdict `unknown`, or `broken`
                              where SGLang itself would refuse the same file
"""

from __future__ import annotations


class SpecwatchError(Exception):
    """Anything that specwatch says instead of a traceback."""


class ConfigError(SpecwatchError):
    """An option or a configuration file is wrong; the text names the file, the key and what was expected."""


class RuleError(SpecwatchError):
    """A rule file breaks a law of the rule format; the text names the file and the example or key."""


class LaunchError(SpecwatchError):
    """A launch command cannot be understood.

    `refusal` holds what SGLang's own argument parser would say (exit code 2), where that is the reason.
    """

    def __init__(self, message: str, *, refusal: str | None = None) -> None:
        super().__init__(message)
        self.refusal = refusal


class SourceError(SpecwatchError):
    """A log could not be opened or read to its end; the text names the path and the reason."""


class ModelError(SpecwatchError):
    """A model folder could not be read as SGLang would read it.

    When SGLang itself would refuse the same files, `exception` and `message` hold the class name and text that it
    raises, and the launch is broken. When the files only cannot be seen from here (not on this machine, too large,
    no permission), `exception` is None and nothing is proved.
    """

    def __init__(self, reason: str, *, exception: str | None = None, message: str | None = None) -> None:
        super().__init__(reason)
        self.exception = exception
        self.message = message


class ApplyError(SpecwatchError):
    """A launch could not be changed, its server not be restarted, or the old launch not be put back.

    `retry` tells what may pass by itself (busy, a time-out) from what a person has to mend first.
    """

    def __init__(self, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.retry = retry
