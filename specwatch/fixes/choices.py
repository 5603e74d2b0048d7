"""The value that was meant by one that a flag does not take."""

from __future__ import annotations

import re
from typing import NamedTuple

from specwatch.launch.command import Certainty, Flag, takes

SAME = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "f16": "float16",
    "fp32": "float32",
    "f32": "float32",
    "fp8": "fp8_e4m3",
    "fp8_e4m3fn": "fp8_e4m3",
    "flash_attention_3": "fa3",
    "flash_attn": "fa3",
    "flash-attn": "fa3",
}
"""Other words for values, where the flag has the second one and not the first."""

__all__ = ["Choice", "nearest_choice", "nearest_value", "takes"]


class Choice(NamedTuple):
    """A value to put in the place of a refused one."""

    value: str
    certainty: Certainty
    why: str


def nearest_choice(flag: Flag, text: str) -> Choice | None:
    """The choice of a flag that was meant by another word, None where none is near."""
    import difflib

    known = [choice for choice in flag.choices or () if isinstance(choice, str)]
    plain = _plain(text)
    same = [choice for choice in known if _plain(choice) == plain]
    if len(same) == 1:
        why = f"{flag.name} spells it {same[0]}"
        return Choice(value=same[0], certainty=Certainty.CERTAIN, why=why)
    other = SAME.get(text.lower())
    if other in known:
        exact = text.lower() in ("bf16", "fp16", "f16", "fp32", "f32")
        why = f"{flag.name} calls {text} {other}" if exact else f"{flag.name} has {other} for {text}"
        return Choice(value=other, certainty=Certainty.CERTAIN if exact else Certainty.LIKELY, why=why)
    close = difflib.get_close_matches(text.lower(), [choice.lower() for choice in known], n=2, cutoff=0.75)
    if not close or (len(close) == 2 and _likeness(text, close[0]) == _likeness(text, close[1])):
        return None
    value = next(choice for choice in known if choice.lower() == close[0])
    return Choice(value=value, certainty=Certainty.LIKELY, why=f"{value} is the nearest value that {flag.name} takes")


def nearest_value(flag: Flag, text: str) -> Choice | None:
    """The number that was meant by a word that is none to the parser, None where it cannot be told."""
    plain = text.strip().strip("'\"")
    if flag.type in ("int", "human_readable_int"):
        return _whole(flag, plain)
    if flag.type == "float":
        return _fraction(flag, plain)
    return None


def _whole(flag: Flag, text: str) -> Choice | None:
    if re.fullmatch(r"-?\d{1,18}\.0{1,6}", text):
        value = text.split(".")[0]
        return Choice(value=value, certainty=Certainty.CERTAIN, why=f"{flag.name} takes whole numbers: {value}")
    if re.fullmatch(r"\d{1,3}(,\d{3}){1,5}", text):
        value = text.replace(",", "")
        return Choice(value=value, certainty=Certainty.CERTAIN, why=f"{flag.name} takes no thousands separators")
    if re.fullmatch(r"0[xX][0-9a-fA-F]{1,12}", text):
        value = str(int(text, 16))
        return Choice(value=value, certainty=Certainty.LIKELY, why=f"{text} is {value} in decimal")
    sized = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)\s?([kKmMgG])i?[bB]?", text)
    if sized:
        factor = 1024 ** ("kmg".index(sized[2].lower()) + 1)
        value = str(int(float(sized[1]) * factor))
        why = f"{text} read as {value}, in steps of 1024 as lengths in tokens usually are"
        return Choice(value=value, certainty=Certainty.LIKELY, why=why)
    return None


def _fraction(flag: Flag, text: str) -> Choice | None:
    if re.fullmatch(r"\d{1,9},\d{1,9}", text):
        value = text.replace(",", ".")
        return Choice(value=value, certainty=Certainty.LIKELY, why=f"{flag.name} takes a point, not a comma")
    percent = re.fullmatch(r"(\d{1,2}(?:\.\d{1,4})?)\s?%", text)
    if percent:
        value = f"{float(percent[1]) / 100:g}"
        return Choice(value=value, certainty=Certainty.LIKELY, why=f"{text} as a fraction is {value}")
    return None


def _plain(text: str) -> str:
    return text.strip().lower().replace("-", "_")


def _likeness(one: str, other: str) -> float:
    import difflib

    return difflib.SequenceMatcher(None, one.lower(), other).ratio()
