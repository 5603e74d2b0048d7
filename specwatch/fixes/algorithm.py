"""The speculative algorithm that was meant by a name which SGLang does not know."""

from __future__ import annotations

import re
from collections.abc import Iterator

from specwatch.checks.speculation import algorithms
from specwatch.domain import Applicability
from specwatch.fixes.proposal import Proposal, Request, edited
from specwatch.launch.command import setting

FLAG = "--speculative-algorithm"
FOREIGN = {
    "DRAFTMODEL": "STANDALONE",
    "PROMPTLOOKUP": "NGRAM",
    "MTP": "NEXTN",
    "DEEPSEEKMTP": "NEXTN",
    "EAGLE1": "EAGLE",
    "EAGLE2": "EAGLE",
}
"""What other servers and papers call the algorithms, letters and digits only."""
NEAR = 2


def nearest_algorithm(ask: Request) -> Iterator[Proposal]:
    """Use the known algorithm whose name is nearest to the one that was typed; all of them where several are."""
    launch = ask.launch
    typed = launch.text_value("speculative_algorithm") if launch else None
    if launch is None or typed is None:
        return
    from difflib import SequenceMatcher

    known = algorithms(launch.sglang)
    name = typed.upper().strip()
    meant = FOREIGN.get(_plain(name))
    if meant in known:
        why = f"SGLang calls {typed} {meant}"
        yield edited(launch, (setting(launch, FLAG, meant),), why, ceiling=Applicability.REVIEW)
        return
    far = {one: distance(_plain(name), _plain(one)) for one in known if one != "NONE"}
    least = min(far.values())
    near = [one for one in far if far[one] == least and least <= min(NEAR, len(_plain(name)) // 3)]
    for one in sorted(near, key=lambda one: -SequenceMatcher(None, name, one).ratio()):
        certain = len(near) == 1 and least <= 1
        ceiling = Applicability.SAFE if certain else Applicability.REVIEW
        why = f"{one} is the name nearest to {typed}" if len(near) == 1 else f"{typed} may stand for {one}"
        yield edited(launch, (setting(launch, FLAG, one),), why, ceiling=ceiling)


def _plain(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "", name)


def distance(one: str, other: str) -> int:
    """How many letters have to be changed, added, dropped or swapped with their neighbour to get from one to the other.

    The optimal string alignment distance.
    """
    rows = [list(range(len(other) + 1))]
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, goal in enumerate(other, 1):
            best = min(rows[i - 1][j] + 1, row[j - 1] + 1, rows[i - 1][j - 1] + (letter != goal))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == goal:
                best = min(best, rows[i - 2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]
