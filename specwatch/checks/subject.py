"""What a check looks at: one launch and the model files it names, read once and as SGLang reads them."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from specwatch.domain import NOTHING, Evidence, Launch, Phase, Status, Value, Verdict
from specwatch.errors import ModelError
from specwatch.launch.gpus import Gpu, kind
from specwatch.launch.unfilled import Unfilled, guarded
from specwatch.models.base import ModelConfig, Models, Tokenizer
from specwatch.releases import older

OVERRIDE = "--json-model-override-args"
CAPTURING = ("EAGLE3", "DFLASH", "DSPARK")
"""Algorithms whose way of capturing hidden states may be had without a draft."""


class Unreadable(Exception):  # noqa: N818 - not an error of specwatch: SGLang would stop here
    """SGLang would refuse the launch while reading an argument: its exception's class name and text."""

    def __init__(self, exception: str, message: str) -> None:
        super().__init__(message)
        self.exception = exception
        self.message = message


class Subject(NamedTuple):
    """A launch and its models, with what most checks ask of them.

    The methods raise ModelError where a model folder cannot be read; the runner turns that into a verdict.
    """

    launch: Launch
    models: Models

    @property
    def algorithm(self) -> str | None:
        """The speculative algorithm in upper case, aliases resolved, None without one.

        Mirrors srt/arg_groups/speculative_hook.py: handle_speculative_decoding (NEXTN is EAGLE).
        """
        name = self.launch.text_value("speculative_algorithm")
        if name is None or (self.capturing and name.upper() in CAPTURING):
            return None
        return "EAGLE" if name.upper() == "NEXTN" else name.upper()

    @property
    def capturing(self) -> bool:
        """Whether the server captures hidden states without a draft: the algorithm is then the name of a convention.

        Mirrors srt/arg_groups/validation_hook.py: handle_aux_hidden_state_capture.
        """
        return self.launch.is_set("enable_return_aux_hidden_states") and self.since("0.5.23")

    @property
    def target_path(self) -> str:
        """The target model's path or repository, "" where the launch names none."""
        return self.launch.text_value("model_path") or ""

    @property
    def draft_path(self) -> str | None:
        """The draft model's path or repository as the launch names it."""
        return self.launch.text_value("speculative_draft_model_path")

    def overrides(self) -> Mapping[str, Value]:
        """`--json-model-override-args` as SGLang reads it: it reaches both models.

        Mirrors srt/configs/model_config.py: ModelConfig.__init__. Raises Unreadable with the error that SGLang dies of.
        """
        text = self.launch.value("json_model_override_args")
        if not isinstance(text, str):
            return NOTHING
        try:
            given = json.loads(text)
        except json.JSONDecodeError as error:
            raise Unreadable("JSONDecodeError", str(error)) from error
        except RecursionError as error:
            raise Unreadable("RecursionError", "maximum recursion depth exceeded") from error
        if not given:
            return NOTHING
        if not isinstance(given, dict):
            raise Unreadable("AttributeError", f"'{type(given).__name__}' object has no attribute 'items'")
        return given

    def target(self) -> ModelConfig:
        """The target's configuration."""
        if self.launch.value("model_path") is None:
            raise ModelError("the launch names no model")
        return self.models.config(
            self.target_path,
            overrides=self.overrides(),
            config_file=self.launch.text_value("decrypted_config_file"),
            revision=self.launch.text_value("revision"),
            trust_remote_code=self.launch.is_set("trust_remote_code"),
        )

    def draft(self) -> ModelConfig:
        """The draft's configuration; without a draft path SGLang reads the target as its own draft.

        Mirrors srt/configs/model_config.py: ModelConfig.from_server_args.
        """
        return self.models.config(
            self.draft_path or self.target_path,
            overrides=self.overrides(),
            config_file=self.launch.text_value("decrypted_draft_config_file"),
            revision=self.launch.text_value("speculative_draft_model_revision") or self.launch.text_value("revision"),
            trust_remote_code=self.launch.is_set("trust_remote_code"),
        )

    def target_tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the server, None with `--skip-tokenizer-init`."""
        if self.launch.is_set("skip_tokenizer_init"):
            return None
        own = self.launch.text_value("tokenizer_path")
        return self.models.tokenizer(own or self.target_path, revision=self.launch.text_value("revision"))

    def attention_dp(self) -> bool:
        """Whether attention data parallelism is on. Mirrors srt/arg_groups/parallel_hook.py of 0.5.23 and before it."""
        size = self.launch.value("attn_dp_size")
        if isinstance(size, int) and size > 1:
            return True
        dp = self.launch.value("dp_size", 1)
        return self.launch.is_set("enable_dp_attention") and isinstance(dp, int) and dp > 1

    def env_flag(self, name: str) -> bool:
        """A boolean environment variable of the launch, as srt/environ.py: EnvBool reads it."""
        return self.launch.env.get(name, "").lower() in ("true", "1", "yes", "y")

    @property
    def gpu(self) -> Gpu | None:
        """The kind of GPU, where somebody or the log says so; without one the launch's `--device` may still tell."""
        return kind(self.launch.gpu) if self.launch.gpu else None

    def since(self, release: str) -> bool:
        """Whether the launch's SGLang is this release or newer; an unknown one is taken for the newest."""
        return not older(self.launch.sglang, release)

    def number(self, name: str) -> int | None:
        """An argument as a whole number, None where it is not given."""
        value = self.launch.value(name)
        try:
            return None if value is None or isinstance(value, (list, dict)) else operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            return None


class Answer(NamedTuple):
    """What a check found: nothing wrong (`cause` empty), or a cause, with what SGLang prints for it (None: nothing).

    `unknown` says why nothing could be told.
    """

    cause: str = ""
    exception: str | None = None
    message: str | None = None
    facts: Mapping[str, Value] = NOTHING
    evidence: tuple[Evidence, ...] = ()
    unknown: str = ""
    because: str = ""


def broken(cause: str, exception: str | None, message: str | None, *evidence: Evidence, **facts: Value) -> Answer:
    """The answer of a check that refuses the launch."""
    return Answer(cause=cause, exception=exception, message=message, evidence=evidence, facts=facts)


class Run(Protocol):
    """The body of a check; None means that the check does not apply to this launch."""

    def __call__(self, subject: Subject, /) -> Answer | None:
        """Answer for one launch."""


class Check(NamedTuple):
    """One validation of SGLang, re-run: its name, when in a start it comes, and the function that it mirrors.

    What an `advisory` check finds is worth knowing and condemns no fix.
    """

    name: str
    phase: Phase
    mirrors: str
    run: Run
    advisory: bool = False

    def __call__(self, launch: Launch, models: Models) -> Verdict:
        """The verdict on a launch. Never raises for what a model folder or an argument holds."""
        try:
            answer = self.run(Subject(guarded(launch), models))
        except Unfilled as error:
            answer = Answer(unknown=str(error))
        except Unreadable as error:
            answer = broken("unreadable-override", error.exception, error.message, flag=OVERRIDE)
        except ModelError as error:
            if error.exception is None:
                answer = Answer(unknown=str(error))
            else:
                answer = broken("unreadable-config", error.exception, error.message, reason=str(error))
        if answer is None:
            return Verdict(check=self.name, status=Status.SOUND, phase=self.phase, because="does not apply")
        status = Status.UNKNOWN if answer.unknown else Status.BROKEN if answer.cause else Status.SOUND
        return Verdict(
            check=self.name,
            status=status,
            cause=answer.cause,
            facts=answer.facts,
            evidence=answer.evidence,
            because=answer.unknown or answer.because,
            phase=self.phase,
            exception=answer.exception,
            message=answer.message,
        )


def fact(check: str, what: str, value: Value, source: str) -> Evidence:
    """One piece of evidence."""
    return Evidence(check=check, fact=what, value=value, source=source)


def size_of_vocabulary(check: str, whose: str, config: ModelConfig) -> Evidence:
    """The evidence for a model's vocabulary size: the value that SGLang compares, and who says so."""
    return fact(check, f"{whose} vocab_size", config.vocab_size, config.text.origin("vocab_size") or config.source)
