"""Puts the HTTP side together for one daemon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from specwatch.errors import ConfigError
from specwatch.settings import Settings
from specwatch.watching.casework import Say
from specwatch.watching.tally import Tally


def start(
    settings: Callable[[], Settings],
    store: Path,
    tally: Tally,
    now: Callable[[], float],
    wall: Callable[[], float],
    say: Say,
    status_of: Callable[[str], str | None],
) -> Callable[[], None]:
    """Serve what `[web]` says; gives what ends it. `store` is the store's file, `now` and `wall` the daemon's clock,
    `status_of` gives the status of a rule by its name.

    Raises ConfigError where the address cannot be had, or the packages for it are not installed.
    """
    try:
        from specwatch.alerts.gateway import receive
        from specwatch.metrics import Metrics
        from specwatch.web.app import application
        from specwatch.web.server import Front, Uvicorn
        from specwatch.web.site import Site
    except ModuleNotFoundError as error:
        raise ConfigError(f"[web] needs {error.name}: pip install 'specwatch[daemon]', or remove [web]") from None
    site = Site(settings=settings, state=store.parent, tally=tally, now=now, wall=wall, status_of=status_of)
    metrics = Metrics(settings, store.parent, tally, wall)
    app = application(site, metrics.text, lambda body: receive(body, store, settings(), say), say)
    front = Front(settings().web.listen, lambda: Uvicorn(app), say)
    front.start()
    return front.stop
