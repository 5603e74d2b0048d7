"""Keep secrets out of everything that specwatch prints or stores.

Two halves: names that hold secrets, whose values are hidden whole, and texts that look like secrets by themselves.
Every pattern starts at a place that few characters can be, and never gives back what it took: the time stays linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from specwatch.domain import Launch, Value
from specwatch.errors import LaunchError
from specwatch.lazy import compiled
from specwatch.report.secret_names import LONGEST_NAME, plain_name, secret_in_text, secret_name

__all__ = ["HIDDEN", "argv", "env", "launch", "secret", "secret_name", "text"]

HIDDEN = "<redacted>"
DEEPEST_SCRIPT = 4  # shells in shells; deeper ones are read as plain text

# --- texts -----------------------------------------------------------------------------------------------------------

# a name, the quote behind it (of JSON in JSON: with backslashes), and what separates it from its value
_NAMED = compiled(
    rf"(?<![\w-])(?P<name>(?:[Aa][Pp][Ii] (?=[Kk][Ee][Yy]))?-{{0,2}}\w[\w.-]{{0,{LONGEST_NAME}}}+)"
    r"(?:(?P<closed>\\{0,8}+['\"])?[ \t]{0,4}+(?:=>|:=|[:=])[ \t]{0,4}+"
    r"|\\{0,8}+['\"],\s{0,4}+(?=[bru]?\\{0,8}+['\"])"
    r"|(?P<gap>(?:\s|\\\n){1,20}+))"
)
# without any of these no name in a text is that of a secret
_HINT = compiled(r"(?i)--|pass|pwd|secret|key|token|cred|auth|cookie|x-amz")
_OPEN = compiled(r"[bru]?(?P<quote>\\{0,8}+['\"])")
_CLOSE = {mark: compiled(rf"(?:[^\\{mark}\n]|\\[^\n])*+(?={mark}|\n|$|\\)") for mark in "'\""}
_WORD = compiled(
    r"(?:[^\s'\",;&)\]}\\]|\\(?![nrt\\'\"])|,(?!\s|[A-Za-z_]\w{0,60}+=|['\"]|$)|&(?!\s|[A-Za-z_][\w-]{0,60}+=|&|$)"
    r"|;(?!\s|[A-Za-z_]\w{0,60}+=|$)|[)\]}'\"](?![\s,;:.)\]}'\"]|$))*+"
)
_SCHEME_OF_HEADER = compiled(r"(?i:basic|bearer|token|digest|negotiate|apikey)[ \t]{1,4}+")
_NOTHING = compiled(r"(?:None|null|nil|true|false|undefined|unset|empty|\*{1,}+|\.\.\.)$", re.IGNORECASE)
_TYPE = compiled(r"(?:Optional|Union|str|int|bool|bytes|SecretStr|A)(?:[\[|.]|$)")
_NUMBER = compiled(r"[+-]?\d{1,12}(?:\.\d{1,12})?%?$")
_MARK = compiled(r"<[^<>\s]{1,60}>$|\[[A-Z]{1,20}\]$")
_NOT_BEARER = compiled(r"(?:tokens?|auth\w{0,20}+|scheme|realm|credentials?|format|header|and|or|is|was|in|<)\b", re.I)

_SHAPES: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = (
    (
        ("hf_",),
        compiled(r"(?<![A-Za-z0-9])(hf_)(?=[A-Za-z]{0,60}+[A-Z0-9]|[a-z]{0,60}[A-Z]|[a-z]{16})[A-Za-z0-9]{8,}+"),
    ),
    (("sk-",), compiled(r"(?<![A-Za-z0-9_])(sk-)[A-Za-z0-9_-]{12,}+")),
    (("gh", "github_pat_"), compiled(r"(?<![A-Za-z0-9])(gh[pousr]_|github_pat_)[A-Za-z0-9_]{16,}+")),
    (
        ("nvapi-", "glpat-", "xox", "aiza"),
        compiled(r"(?<![A-Za-z0-9])(nvapi-|glpat-|xox[abeoprs]-|AIza)[A-Za-z0-9_-]{8,}+"),
    ),
    (("akia", "asia"), compiled(r"(?<![A-Za-z0-9])((?:AKIA|ASIA))[A-Z0-9]{12,}+")),
    (
        ("eyj",),
        compiled(r"(?<![A-Za-z0-9_-])(eyJ)[A-Za-z0-9_-]{4,}+\.[A-Za-z0-9_-]{2,}+(?:\.[A-Za-z0-9_-]{0,}+)?+"),
    ),
    (("key ",), compiled(r"(?<![\w-])((?i:api key) )(?=[A-Za-z_-]{0,60}+\d)[\w-]{8,}+")),
    (
        ("?", "&"),
        compiled(r"(?<=[?&])((?i:sig|signature|key|code|x-goog-signature|x-goog-credential)=)[^\s&'\"<]{1,}+"),
    ),
    (
        ("sshpass",),
        compiled(
            r"(?<![\w-])(sshpass[ \t]{1,4}+-p[ \t]{0,4}+)(?!['\"]?<redacted>)"
            r"(?:'[^'\n]{0,}+'?|\"[^\"\n]{0,}+\"?|[^\s'\"]{1,}+)"
        ),
    ),
)
"""What secrets look like, each behind texts of which it holds one, in small letters: most texts hold none of them."""
_BEARER = compiled(r"(?<![A-Za-z0-9])([Bb](?i:earer)[ \t]{1,4}+)([^\s'\",;<)\\]{1,}+)")
_AUTHORITY = compiled(r"[^\s'\"<>]{0,}+")
_PEM = "PRIVATE KEY-----"


def text(value: str) -> str:
    """A text with everything that looks like a secret taken out."""
    if _HINT.search(value):
        value = _without_named(value)
    small = value.lower()
    for needles, shape in _SHAPES:
        if any(needle in small for needle in needles):
            value = shape.sub(lambda found: found[1] + HIDDEN, value)
    if "bearer" in small:
        value = _BEARER.sub(lambda f: f[0] if _NOT_BEARER.match(f[2]) else f[1] + HIDDEN, value)
    if "://" in value:
        head, *rest = value.split("://")
        value = "://".join((head, *(_without_login(part) for part in rest)))
    return _without_pem(value) if _PEM in value else value


def _without_named(value: str) -> str:
    """A text without the values that stand behind the names of secrets: `name=…`, `"name": "…"`, `--name …`."""
    out: list[str] = []
    done = at = 0
    while found := _NAMED.search(value, at):
        at = found.end("name")
        name = found["name"]
        flag = name.startswith("--")  # only a flag's value may stand behind a blank or a comma
        separated = found["gap"] is None and any(sign in _separator(found) for sign in ":=")
        if not (flag or separated) or not secret_in_text(name):
            continue
        span = _span(value, found)
        if span is None:
            continue
        start, end = span
        out += [value[done:start], HIDDEN]
        done = at = end
    return "".join((*out, value[done:])) if out else value


def _span(value: str, found: re.Match[str]) -> tuple[int, int] | None:
    """Where the secret behind a name stands, quotes not included; None where it is none."""
    name, start = found["name"], found.end()
    opened = _OPEN.match(value, start)
    if opened:
        start = opened.end()
        end = _end_of_quoted(value, start, opened["quote"])
        inner = value[start:end]
        return (start, end) if inner and not _harmless(name, inner) else None
    if found["gap"] is not None and (value.startswith("--", start) or value.startswith(("|", "&", ";", "\\"), start)):
        return None
    if plain_name(name).endswith("authorization") and (scheme := _SCHEME_OF_HEADER.match(value, start)):
        start = scheme.end()
    end = _end_of_word(value, found, start)
    inner = value[start:end]
    if not inner or _harmless(name, inner) or _prose(found, inner):
        return None
    return start, end


def _end_of_quoted(value: str, start: int, quote_: str) -> int:
    """The place of the quote that closes; of the end of the line where none does."""
    line = value.find("\n", start)
    line = len(value) if line < 0 else line
    mark = quote_[-1]
    if len(quote_) == 1:
        found = _CLOSE[mark].match(value, start)
        return found.end() if found else line
    place = value.find(quote_, start, line)
    while place > 0 and value[place - 1] == "\\":  # a quote one level further in
        place = value.find(quote_, place + 1, line)
    return line if place < 0 else place


def _end_of_word(value: str, found: re.Match[str], start: int) -> int:
    end = _WORD.match(value, start).end()  # type: ignore[union-attr]  # it matches nothing as well
    before = value[found.start() - 1 : found.start()]
    if before and before in "'\"" and not found["closed"]:  # `'NAME=value'`: this very quote ends it
        place = value.find(before, start, end)
        end = end if place < 0 else place
    return end


def _harmless(name: str, inner: str) -> bool:
    """Whether a value tells no secret: nothing, a type, a placeholder, the same name again, a special token."""
    if HIDDEN in inner and not inner.replace(HIDDEN, "").strip("'\" "):
        return True
    if _NOTHING.match(inner) or _TYPE.match(inner):
        return True
    same = name.strip("-").replace("-", "_")
    if inner == same.upper() or re.sub(r".{0,200}\.", "", inner[:200], count=1) == same:
        return True
    return plain_name(name).endswith("token") and bool(_MARK.match(inner) or _NUMBER.match(inner))


def _prose(found: re.Match[str], inner: str) -> bool:
    """Whether `token: word` is a sentence: the bare word, a colon, and nothing that only a machine would write."""
    if ":" not in _separator(found) or found["closed"] or found["name"].lower() not in ("token", "secret"):
        return False
    return len(inner) < 10 or not (any(char.isdigit() for char in inner) and any(char.isalpha() for char in inner))


def _separator(found: re.Match[str]) -> str:
    """What stands between a name and its value."""
    return found[0][len(found["name"]) :]


def _without_login(part: str) -> str:
    """What follows `://`, without the login of the URL: `user:password@`, `token@`, whatever signs are in it."""
    run = _AUTHORITY.match(part)[0]  # type: ignore[index]  # it matches nothing as well
    host = run.partition("/")[0].partition("?")[0]
    at = host.rfind("@")
    if at < 0 and ":" in host and not host.rpartition(":")[2].isdigit() and not host.startswith("["):
        at = run.rfind("@")  # a password with a slash in it
    return part if at <= 0 else HIDDEN + part[at:]


def _without_pem(value: str) -> str:
    """A text without the private keys in PEM form."""
    out: list[str] = []
    at = 0
    while (begin := value.find(_PEM, at)) >= 0:
        begin += len(_PEM)
        end = value.find("-----END", begin)
        end = len(value) if end < 0 else end
        out += [value[at:begin], HIDDEN]
        closed = value.find(_PEM, end)
        at = len(value) if closed < 0 else closed + len(_PEM)
        out.append(value[end:at])
    return "".join((*out, value[at:]))


# --- commands --------------------------------------------------------------------------------------------------------

_SCRIPT_FLAG = compiled(r"-[a-z]{0,6}c$")
_ASSIGNED = compiled(r"-{0,2}[\w.-]{1,120}")
_PASSWORD_FLAGS = {"sshpass": ("-p",), "curl": ("-u", "--user", "--proxy-user", "-U"), "wget": ("--password",)}


def argv(tokens: Iterable[str]) -> tuple[str, ...]:
    """A command's tokens, the values of secret flags and of secret assignments taken out, scripts of shells read."""
    return _argv(tokens, 0)


def _argv(tokens: Iterable[str], depth: int) -> tuple[str, ...]:
    out: list[str] = []
    hide = script = False
    asking: tuple[str, ...] = ()
    for token in tokens:
        if hide and not token.startswith("--"):
            out.append(HIDDEN)
            hide = False
            continue
        if script and depth < DEEPEST_SCRIPT and not token.startswith("-"):
            out.append(_script(token, depth + 1))
        elif asking and token[:2] in asking and len(token) > 2 and not token.startswith("--"):
            out.append(token[:2] + HIDDEN)
        else:
            out.append(_word(token))
        program = token.rpartition("/")[2]
        asking = _PASSWORD_FLAGS.get(program, asking)
        hide = token in asking or (token.startswith("--") and "=" not in token and secret_name(token))
        script = bool(_SCRIPT_FLAG.match(token)) or token == "eval"  # noqa: S105 - a word of the shell
    return tuple(out)


def _word(token: str) -> str:
    """One token: `NAME=secret`, `--env=NAME=secret`, or a text that may hold anything."""
    at = 0 if _HINT.search(token) else len(token)
    while (equals := token.find("=", at)) >= 0:
        name = token[at:equals]
        if len(name) > LONGEST_NAME or not _ASSIGNED.fullmatch(name):
            break
        short = name[2:] if name.startswith("-e") and not name.startswith("--") else name
        if secret_name(short):
            value = token[equals + 1 :]
            return token if not value or _harmless(short, value) else f"{token[: equals + 1]}{HIDDEN}"
        at = equals + 1
    return text(token)


def _script(source: str, depth: int) -> str:
    """A shell script in a token, redacted word by word so that it stays one."""
    from specwatch.launch.shell import Lexer, Operator

    lexer = Lexer(source, {})
    spans: list[tuple[int, int, str]] = []
    try:
        while (token := lexer.next()) is not None:
            if not isinstance(token, Operator):
                spans.append((token.start, token.end, token.value))
    except LaunchError:
        return text(source)
    out: list[str] = []
    done = 0
    for (start, end, value), shown in zip(spans, _argv((value for *_, value in spans), depth), strict=True):
        out.append(_comment(source[done:start]))
        out.append(source[start:end] if shown == value else _quoted(shown))
        done = end
    return "".join((*out, _comment(source[done:])))


def _comment(gap: str) -> str:
    """What stands between two words: only a comment or a here-document has room for a secret."""
    return text(gap) if len(gap) > 3 else gap


def _quoted(word: str) -> str:
    from specwatch.launch.shell import quote

    name, equals, rest = word.partition("=")
    # an assignment is one only while its name stands outside of quotes
    return f"{name}={quote(rest)}" if equals and name.isidentifier() else quote(word)


def env(variables: Mapping[str, str]) -> dict[str, str]:
    """Environment variables, the values of secret ones taken out."""
    return {name: HIDDEN if secret_name(name) else text(value) for name, value in variables.items()}


def launch(command: Launch) -> Launch:
    """A launch to be shown: tokens and variables without the secrets, no text or values that still hold them."""
    return replace(command, argv=argv(command.argv), env=env(command.env), text="", values={}, recorded=None)


def secret(fact: str, value: Value) -> Value:
    """A value to be shown behind its name: hidden where the name is that of a secret."""
    if not isinstance(value, str):
        return value
    return HIDDEN if value and secret_in_text(fact) and not _harmless(fact, value) else text(value)
