"""By which address others reach the page: for links in alerts, and for the names that it answers to."""

from __future__ import annotations

import ipaddress
import socket

from specwatch.settings import Web


def base(web: Web) -> str:
    """The beginning of every link to the page, empty where none is served."""
    return web.url.rstrip("/") or (f"http://{reached(web.listen)}" if web.listen else "")


def reached(listen: str, name: str = "") -> str:
    """The HOST:PORT by which others can call what listens there: this machine's name where it listens everywhere.

    `name` is that name, else gethostname(2); DNS, which may take its time, is not asked.
    """
    host, _, port = listen.rpartition(":")
    try:
        everywhere = ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return listen
    return f"{name or socket.gethostname()}:{port}" if everywhere else listen
