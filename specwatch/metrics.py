"""The daemon's numbers for Prometheus, read at the moment of a scrape: from its tally, its store and what was changed.

Names follow Prometheus' conventions (base units, `_total` for counters); `promtool check metrics` has nothing to say.
Labels are names of servers, rules, severities and receivers: never a text of a log. What cannot be read at a scrape
(the store is locked, or gone) is left out of it, and `specwatch_scrape_errors` counts it.
"""

from __future__ import annotations

import platform
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from specwatch import __version__
from specwatch.errors import SpecwatchError
from specwatch.settings import Settings
from specwatch.storage.actions import Actions
from specwatch.storage.history import opened
from specwatch.storage.outbox import depth
from specwatch.watching.tally import MOST_SERIES, Tally

TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """All metrics of one daemon. `settings` gives those in force, `wall` the time in seconds since 1970."""

    def __init__(self, settings: Callable[[], Settings], state: Path, tally: Tally, wall: Callable[[], float]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Numbers(settings, state, tally, wall))
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """The exposition, to be served as `TYPE`."""
        return generate_latest(self._registry)


class _Numbers(Collector):
    def __init__(self, settings: Callable[[], Settings], state: Path, tally: Tally, wall: Callable[[], float]) -> None:
        self._settings, self._state, self._tally, self._wall = settings, state, tally, wall

    def describe(self) -> Iterable[Metric]:
        """Nothing is read at registration."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Everything that can be read now."""
        names = [server.name for server in self._settings().servers]
        yield from self._daemon()
        yield from self._sources(names)
        errors = 0
        for part in (self._findings, self._outbox, self._actions):
            try:
                yield from part(names)
            except (sqlite3.Error, SpecwatchError, OSError):
                errors += 1
        failed = GaugeMetricFamily("specwatch_scrape_errors", "Parts of this scrape that could not be read.")
        failed.add_metric([], errors)
        yield failed

    def _daemon(self) -> Iterator[Metric]:
        tally = self._tally
        info = GaugeMetricFamily(
            "specwatch_build_info", "Always 1; the labels say what runs.", labels=["version", "python"]
        )
        info.add_metric([__version__, platform.python_version()], 1)
        yield info
        for name, says, value in (
            ("start_timestamp_seconds", "When this daemon started, in seconds since 1970.", tally.started),
            ("last_turn_timestamp_seconds", "When the loop last finished a turn.", tally.turned_wall),
            ("store_writable", "Whether the store took what was last given to it.", float(tally.storing)),
        ):
            yield GaugeMetricFamily(f"specwatch_{name}", says, value=value)
        for name, says, count in (
            ("store_commit_errors", "Times that the store was found not to be writable.", tally.commit_errors),
            (
                "inspection_failures",
                "Readings of model files that died, ran out of time or memory; their findings are not proved.",
                tally.inspection_failures,
            ),
        ):
            yield CounterMetricFamily(f"specwatch_{name}", says, value=count)

    def _sources(self, names: list[str]) -> Iterator[Metric]:
        tally, wall = self._tally, self._wall()
        counts: tuple[tuple[str, str, Counter[str]], ...] = (
            ("source_lines", "Lines of logs that were read.", tally.lines),
            ("source_bytes", "Bytes of the lines that were read, as far as they were kept.", tally.bytes),
            ("source_lines_capped", "Lines that were longer than specwatch keeps, and cut.", tally.capped),
            ("source_troubles", "Gaps, unreadable files and lost sources that the log tells of.", tally.troubles),
            ("findings_resolved", "Findings that ended because the server was ready or healthy again.", tally.resolved),
        )
        for name, says, counter in counts:
            known = dict(counter)
            family = CounterMetricFamily(f"specwatch_{name}", says, labels=["server"])
            for server in sorted({*names, *known} - {""})[:MOST_SERIES]:
                family.add_metric([server], known.get(server, 0))
            yield family
        lag = GaugeMetricFamily(
            "specwatch_source_lag_seconds",
            "For how long there has been more to read of a server's logs than was read; 0 when all is read.",
            labels=["server"],
        )
        behind = tally.behind_since
        for server in sorted({*names, *behind}):
            lag.add_metric([server], max(0.0, wall - behind[server]) if server in behind else 0.0)
        yield lag
        for name, says, values in (
            ("source_last_line_timestamp_seconds", "When the last line of a server was read.", dict(tally.last_line)),
            (
                "server_up",
                "What the health endpoint of a server last said; absent for a server without one.",
                {server: float(up) for server, up in dict(tally.up).items() if server in names},
            ),
        ):
            gauge = GaugeMetricFamily(f"specwatch_{name}", says, labels=["server"])
            for server, value in sorted(values.items()):
                gauge.add_metric([server], value)
            yield gauge

    def _findings(self, names: list[str]) -> Iterator[Metric]:
        raised = CounterMetricFamily(
            "specwatch_findings",
            "Findings that were raised, or came back, since the start.",
            labels=["server", "rule", "severity"],
        )
        for key, count in sorted(dict(self._tally.findings).items()):
            raised.add_metric(list(key), count)
        yield raised
        firing = GaugeMetricFamily(
            "specwatch_findings_firing", "Findings that fire now.", labels=["server", "rule", "severity"]
        )
        loop = GaugeMetricFamily(
            "specwatch_crash_loop", "1 while a server crashes of the same cause again and again.", labels=["server"]
        )
        with opened(self._state) as history:
            for one in history.firing():
                firing.add_metric([one.server, one.rule, one.severity], one.count)
            looping = set(history.looping())
        for server in sorted({*names, *looping}):
            loop.add_metric([server], float(server in looping))
        yield firing
        yield loop

    def _outbox(self, names: list[str]) -> Iterator[Metric]:
        del names
        settings, wall = self._settings(), self._wall()
        waits = GaugeMetricFamily(
            "specwatch_outbox_depth", "Notifications that wait to be delivered.", labels=["receiver"]
        )
        dead = GaugeMetricFamily(
            "specwatch_outbox_dead", "Notifications that were given up (specwatch alerts list).", labels=["receiver"]
        )
        oldest = GaugeMetricFamily(
            "specwatch_outbox_oldest_seconds", "How long the oldest notification has waited.", labels=["receiver"]
        )
        found = depth(self._state / "specwatch.db")
        for name in sorted({*found, *(alert.name for alert in settings.alerts)}):
            one = found.get(name)
            waits.add_metric([name], one.pending if one else 0)
            dead.add_metric([name], one.dead if one else 0)
            oldest.add_metric([name], max(0.0, wall - one.oldest) if one and one.oldest else 0.0)
        yield waits
        yield dead
        yield oldest

    def _actions(self, names: list[str]) -> Iterator[Metric]:
        del names
        folder = Path(self._settings().state.actions)
        if not (folder / "actions.db").is_file():
            return
        store = Actions(folder, read_only=True)
        try:
            done = Counter((one.server, one.state if not one.open else "running") for one in store.actions())
            open_breakers = store.breakers()
        finally:
            store.close()
        actions = CounterMetricFamily(
            "specwatch_actions", "Changes of launches, by what came of them.", labels=["server", "result"]
        )
        for (server, result), count in sorted(done.items()):
            if result != "running":
                actions.add_metric([server, result], count)
        running = GaugeMetricFamily("specwatch_actions_running", "Changes that are under way.", labels=["server"])
        breaker = GaugeMetricFamily(
            "specwatch_breaker_open", "1 while only a person may go on (specwatch reset).", labels=["server"]
        )
        for server in sorted({server for server, _ in done} | set(open_breakers)):
            running.add_metric([server], done.get((server, "running"), 0))
            breaker.add_metric([server], float(server in open_breakers))
        yield actions
        yield running
        yield breaker
