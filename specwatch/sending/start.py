"""Keeps somebody sending as long as somebody wants to be told. Imports what sends only then."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from specwatch.report import redact
from specwatch.settings import Settings
from specwatch.storage.owing import Receiver
from specwatch.storage.store import Store

if TYPE_CHECKING:
    from specwatch.sending.sender import Sender
    from specwatch.watching.casework import Say

LAST_WORDS = 10.0
"""Seconds for which a run that ends by itself (`--once`) goes on sending what is due."""


def shown(settings: Settings) -> Settings:
    """The settings without the secrets that may stand in them: Slack's address, logins in addresses, OTLP headers."""

    def address(url: str, kind: str) -> str:
        parts = urlsplit(url)
        return (
            f"{parts.scheme}://{parts.netloc}/{redact.HIDDEN}" if kind == "slack" and parts.netloc else redact.text(url)
        )

    return replace(
        settings,
        alerts=tuple(replace(one, url=address(one.url, one.kind)) for one in settings.alerts),
        enrich=replace(settings.enrich, forward=tuple(map(redact.text, settings.enrich.forward))),
        otel=replace(settings.otel, headers=dict.fromkeys(settings.otel.headers, redact.HIDDEN)),
    )


class Alerting:
    """The receivers of one store, and the thread that tells them."""

    def __init__(self, store: Store, say: Say) -> None:
        self._store, self._say = store, say
        self._sender: Sender | None = None

    def configure(self, settings: Settings) -> None:
        """From now on tell these receivers. Raises ConfigError, changing nothing, where a package is missing."""
        if not (settings.alerts or settings.enrich.forward or settings.otel.endpoint or self._sender):
            if settings.path is not None:  # nobody any more, rather than a run beside the configuration
                self._serve((), ())
            return
        from specwatch.alerts.gateway import routes
        from specwatch.alerts.kinds import receivers
        from specwatch.sending.sender import Sender, check

        for text in check(settings):
            self._say("error", "receiver_troubled", because=text, says="it is told once that is put right")
        self._serve(receivers(settings), [route.name for route in routes(settings)])
        if self._sender is None:
            self._sender = Sender(self._store.path, settings, self._say)
            self._sender.start()
        else:
            self._sender.configure(settings)

    def _serve(self, receivers: Sequence[Receiver], routes: Sequence[str]) -> None:
        try:
            self._store.serve(receivers, time.time(), routes)
        except sqlite3.Error as error:
            self._say("error", "store_unwritable", because=str(error))

    def close(self, *, finished: bool) -> None:
        """Stop. What is not sent stays in the store; `finished` gives it a while to be sent now."""
        if self._sender is not None:
            self._sender.stop(LAST_WORDS if finished else 0.0)
