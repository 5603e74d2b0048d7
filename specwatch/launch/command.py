"""Launch commands of SGLang: read them, change them without loss, write them. The one module that others import."""

from __future__ import annotations

from specwatch.launch.container import container_setting
from specwatch.launch.editing import edit, removal, setting, setting_env, typed_flags
from specwatch.launch.flags import Flag
from specwatch.launch.meaning import Certainty, Meaning, meaning, switch
from specwatch.launch.parsing import parse
from specwatch.launch.refusals import Refused, Stray, candidates, refused, takes
from specwatch.launch.writing import render

__all__ = [
    "Certainty",
    "Flag",
    "Meaning",
    "Refused",
    "Stray",
    "candidates",
    "container_setting",
    "edit",
    "meaning",
    "parse",
    "refused",
    "removal",
    "render",
    "setting",
    "setting_env",
    "switch",
    "takes",
    "typed_flags",
]
