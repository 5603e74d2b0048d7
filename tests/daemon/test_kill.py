"""Kill -9 at random points of a scripted day: every crash is found exactly once.

`KILLS=500` in the environment makes it a long day.
"""

from __future__ import annotations

import os
import random
import select
from pathlib import Path

import pytest
from daytime import Forked, daemon_in, run_of, word

from specwatch.rulebook.book import load_directories

KILLS = int(os.environ.get("KILLS", "40"))


@pytest.mark.parametrize("seed", [1, 2])
def test_every_crash_is_found_exactly_once_whenever_we_are_killed(tmp_path: Path, seed: int) -> None:
    book, dice = load_directories().book, random.Random(seed)
    log, state = tmp_path / "server.log", tmp_path / "state"
    log.touch()
    first, store = daemon_in(log, state, book)
    first.turn(0.0)
    first.close()  # what was rotated away before the first start is history
    store.close()
    crashes, kills = KILLS // 2, 0
    daemon = Forked(log, state, book)
    for number in range(crashes):
        text = "\n".join(run_of(number)) + "\n"
        # half of the writes end in the middle of a line
        cuts = sorted(dice.choice((spot, text.find("\n", spot) + 1)) for spot in dice.choices(range(len(text)), k=3))
        for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            with log.open("a") as file:
                file.write(text[start:end])
            if dice.random() < 0.5 and kills < KILLS // 2:
                # the instant is random, not waited for
                select.select([daemon.turns], [], [], dice.random() * 0.05)
                daemon.kill()
                kills += 1
                if dice.random() < 0.5 and text[:end].endswith("\n"):
                    log.rename(tmp_path / f"server.log.{kills}")
                    log.touch()
                daemon = Forked(log, state, book)
    daemon.kill()
    kills += 1
    last, store = daemon_in(log, state, book)
    last.turn(0.0)
    while last.reading:
        last.turn(0.0)
    last.finish()
    found = {str(one.document["root"]["text"]): one.occurrences for one in store.findings() if one.occurrences}  # type: ignore[index]
    last.close()
    store.close()
    assert found == {f"ValueError: the {word(number)} broke": 1 for number in range(crashes)}
