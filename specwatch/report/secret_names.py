"""Which names of flags, variables and keys hold secrets.

The patterns here only ever see names of at most `LONGEST_NAME` characters.
"""

from __future__ import annotations

import re

from specwatch.lazy import compiled

LONGEST_NAME = 120
_FLAGS = ("--api-key", "--admin-api-key", "--ssl-keyfile-password")
# what argparse takes for one of these, the shortest that is not also another flag
_SHORTEST = {"--api-key": 4, "--admin-api-key": 4, "--ssl-keyfile-password": len("--ssl-keyfile-")}
_CAMEL = compiled(r"(?<=[a-z0-9])(?=[A-Z])")
_NUMBERED = compiled(r"(?<=[a-z])-?\d{1,4}$")
_ANYWHERE = compiled(r"passw|passphrase|secret|credential|api-?key|api-?k(?:ey?)?y?$|admin-key|access-?key|x-amz-sig")
_LAST = compiled(r"(?:^|-)(?:key|token|authorization|cookie|pwd|auth|[a-z]*authtoken)$")
_PASS = compiled(r"(?:(?:^|-)(?<!forward-)(?<!backward-)(?<!two-)(?<!single-)(?<!multi-)|pg|db|my|ssh)pass$")
# what people write instead of a flag's name
_MISSPELT = compiled(r"(?:^|-)(?:k+e+y+s?|kye|t+o+k+e+n+|toekn|tokne|tokn|passwrod|pasword)$")
# names that end in such a word and hold no secret
_HARMLESS = compiled(
    r"(?:^|-)(?:mask|bos|eos|pad|unk|cls|sep|num|min|max|draft|total|prefill|decode|image|audio|video|vision|special|"
    r"added|stop|start|end|begin|boi|eoi|think|call|new|cached|pending|input|output|prompt|first|next|last|prev|per|"
    r"verify|bonus|accepted|sampled|generated|full|swa|target|text|word)-(?:[a-z0-9]+-)*tokens?$|(?:^|-)ssl-keyfile$"
)
# in running text a bare `key` or `auth` is a word, not the name of a secret
_WORDY = compiled(r"(?:^|-)(?:key|auth)$")
_QUALIFIED = compiled(
    r"(?:api|admin|access|private|signing|encryption|auth|account|master|license|licence|shared|client|watermark|"
    r"session|service|deploy|ssh|gpg)-?key$|(?:basic|proxy|http|registry|redis)-auth$"
)


def secret_name(name: str) -> bool:
    """Whether a flag or a variable of this name holds a secret; abbreviated and misspelt flags of this sort as well."""
    if len(name) > LONGEST_NAME:
        return False
    flag = name.startswith("--")
    plain = plain_name(name)
    if _HARMLESS.search(plain):
        return False
    if _ANYWHERE.search(plain) or _LAST.search(plain) or _PASS.search(plain):
        return True
    spelled = f"--{plain}"
    abbreviated = any(len(spelled) >= _SHORTEST[known] and known.startswith(spelled) for known in _FLAGS)
    return flag and (abbreviated or bool(_MISSPELT.search(plain)))


def plain_name(name: str) -> str:
    """A name in small letters with hyphens between its parts, a number at its end taken off."""
    spaced = _CAMEL.sub("-", name.strip("-_.")).lower()
    return _NUMBERED.sub("", re.sub(r"[_. ]", "-", spaced))


def secret_in_text(name: str) -> bool:
    """Whether a name that stands before `=` or `:` in running text holds a secret: less than as a flag does."""
    if not secret_name(name):
        return False
    if name.startswith("--") or (name.isupper() and "_" in name):
        return True
    plain = plain_name(name)
    return not _WORDY.search(plain) or bool(_QUALIFIED.search(plain))
