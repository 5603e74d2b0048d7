"""The routes. Each reads what it needs in a thread and answers with a page, JSON or text; `guard` stands before all."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from specwatch.errors import SpecwatchError
from specwatch.watching.casework import Say
from specwatch.web import openapi, pages
from specwatch.web.approving import Approving, RefusedError
from specwatch.web.asking import fix_of, form_of, integer, is_object, is_server, named, only, server_name
from specwatch.web.guard import ALERTS, LARGEST, Guard
from specwatch.web.site import Site

Take = Callable[[bytes], bytes]
"""Takes charge of alerts of others and gives them enriched. Raises SpecwatchError where it cannot."""
Text = Callable[[], bytes]

_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_WORDS = {
    400: "That is not understood",
    401: "Who are you?",
    403: "That is not allowed",
    404: "There is no such page",
    405: "That is not done here",
    413: "That is too large",
    421: "Another name was expected",
    500: "Something went wrong",
    503: "Not now",
}


def application(site: Site, metrics: Text, take: Take, say: Say) -> ASGIApp:
    """The whole HTTP side as an ASGI application."""
    routes = _Routes(site, metrics, take, say)

    def failed(path: str, error: BaseException) -> None:
        say("error", "request_failed", path=path[:200], because=f"{type(error).__name__}: {error}")

    async def refuse(scope: Scope, status: int, text: str) -> tuple[bytes, bytes]:
        answer = routes.refusal(scope["path"], status, text)
        return answer.headers["content-type"].encode(), bytes(answer.body)

    inner = Starlette(
        routes=routes.all(),
        exception_handlers={
            HTTPException: routes.on_http,
            sqlite3.Error: routes.on_store,
            SpecwatchError: routes.on_store,
            Exception: routes.on_failure,
        },
    )
    inner.router.redirect_slashes = False
    return Guard(inner, lambda: site.settings().web, refuse, failed)


class _Routes:
    def __init__(self, site: Site, metrics: Text, take: Take, say: Say) -> None:
        self._site, self._metrics, self._take, self._say = site, metrics, take, say
        self._approving = Approving(site)
        self._large = threading.Lock()

    def all(self) -> list[Route]:
        """Every route."""
        one = "/findings/{server}/{finding}"
        gets: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/": self.home,
            one: self.finding,
            "/servers/{server}": self.server,
            "/audit": self.audit,
            "/static/{name}": self.static,
            "/metrics": self.metrics,
            "/healthz": self.healthz,
            "/readyz": self.readyz,
            "/api/v1/findings": self.api_findings,
            f"/api/v1{one}": self.api_finding,
            "/api/v1/servers": self.api_servers,
            "/api/v1/actions": self.api_actions,
            "/api/v1/openapi.json": self.openapi,
        }
        routes = [Route(path, endpoint, methods=["GET"]) for path, endpoint in gets.items()]
        return [
            *routes,
            Route(f"{one}/approve", self.approve, methods=["GET", "POST"]),
            Route(f"/api/v1{one}/approve", self.api_approve, methods=["POST"]),
            Route(ALERTS, self.alertmanager, methods=["POST"]),
        ]

    # pages

    async def home(self, _request: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(self._site.home))

    async def finding(self, request: Request) -> Response:
        server, finding = named(request)
        page = await run_in_threadpool(self._site.finding, server, finding)
        return _page(page, f"{server} has no finding {finding}")

    async def approve(self, request: Request) -> Response:
        """The form, and what a browser sends with it."""
        server, finding = named(request)
        if request.method == "GET":
            return _page(await run_in_threadpool(self._approving.page, server, finding), "there is no such finding")
        fields = form_of(await request.body())
        try:
            await run_in_threadpool(
                self._approve, server, finding, fields.get("fix", ""), fields.get("token", "").strip()
            )
        except RefusedError as error:
            page = await run_in_threadpool(self._approving.page, server, finding, str(error))
            return HTMLResponse(page or self._site.message("Not done", str(error)), status_code=error.status)
        text = (
            f"{fields['fix']} for {server} is approved. The service that applies takes it up now; "
            "what comes of it stands under Audit."
        )
        return HTMLResponse(self._site.message("Approved", text, bad=False))

    async def api_approve(self, request: Request) -> Response:
        only(request)
        server, finding = named(request)
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        fix = await run_in_threadpool(fix_of, await request.body())
        if not fix:
            raise HTTPException(400, 'Expected {"fix": "ID"}.')
        try:
            given = token.strip() if kind.lower() == "bearer" else ""
            await run_in_threadpool(self._approve, server, finding, fix, given)
        except RefusedError as error:
            headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
            raise HTTPException(error.status, str(error), headers) from None
        return _json({"approved": True, "server": server, "finding": finding, "fix": fix})

    def _approve(self, server: str, finding: str, fix: str, token: str) -> None:
        try:
            self._approving.approve(server, finding, fix, token)
        except RefusedError as error:
            self._say("warning", "approval_refused", server=server, finding=finding, because=str(error))
            raise
        except OSError as error:
            raise RefusedError(503, f"The proposal cannot be written: {error.strerror}") from None
        self._say("warning", "fix_approved", server=server, finding=finding, fix=fix)

    async def server(self, request: Request) -> Response:
        name = request.path_params["server"]
        page = await run_in_threadpool(self._site.server, name) if is_server(name) else None
        return _page(page, f"no server is called {name[:100]}")

    async def audit(self, _request: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(self._site.audit))

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        content = pages.static(name)
        if content is None:
            raise HTTPException(404, "There is no such file.")
        return Response(content, media_type=pages.STATIC[name], headers={"Cache-Control": "max-age=3600"})

    # for machines

    async def metrics(self, _request: Request) -> Response:
        return Response(await run_in_threadpool(self._metrics), headers={"Content-Type": _METRICS})

    async def healthz(self, _request: Request) -> Response:
        return _health(self._site.alive())

    async def readyz(self, _request: Request) -> Response:
        return _health(self._site.alive() or await run_in_threadpool(self._site.unready))

    async def openapi(self, request: Request) -> Response:
        only(request)
        return JSONResponse(openapi.description())

    async def api_findings(self, request: Request) -> Response:
        only(request, "server", "state", "limit", "offset")
        query = request.query_params
        state = query.get("state")
        if state is not None and state not in openapi.STATES:
            raise HTTPException(400, f"state: expected one of {', '.join(openapi.STATES)}")
        given = (
            server_name(query.get("server")),
            state or "",
            integer(query.get("limit"), "limit", 1, 200, 100),
            integer(query.get("offset"), "offset", 0, 1_000_000, 0),
        )
        return _json(await run_in_threadpool(self._site.api_findings, *given))

    async def api_finding(self, request: Request) -> Response:
        only(request)
        server, finding = named(request)
        found = await run_in_threadpool(self._site.api_finding, server, finding)
        if found is None:
            raise HTTPException(404, f"{server} has no finding {finding}")
        return _json(found)

    async def api_servers(self, request: Request) -> Response:
        only(request)
        return _json(await run_in_threadpool(self._site.api_servers))

    async def api_actions(self, request: Request) -> Response:
        only(request, "server", "limit")
        query = request.query_params
        given = server_name(query.get("server")), integer(query.get("limit"), "limit", 1, 200, 100)
        return _json(await run_in_threadpool(self._site.api_actions, *given))

    async def alertmanager(self, request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HTTPException(415, "Expected alerts as application/json, as Alertmanager's webhook sends them.")
        taken = await run_in_threadpool(self._alerts, await request.body())
        return Response(taken, media_type="application/json")

    def _alerts(self, body: bytes) -> bytes:
        large = len(body) > LARGEST
        if large and not self._large.acquire(blocking=False):  # many of them at once would take much memory
            raise HTTPException(503, "Another large body of alerts is being read; try again.")
        try:
            if not is_object(body):
                raise HTTPException(400, "The body is no JSON object.")
            return self._take(body)
        finally:
            if large:
                self._large.release()

    # what goes wrong

    def refusal(self, path: str, status: int, text: str) -> Response:
        """An answer that says why not: JSON for machines, a page for people."""
        if path.startswith(("/api/", ALERTS, "/metrics", "/healthz", "/readyz")):
            return JSONResponse({"error": text}, status_code=status)
        return HTMLResponse(self._site.message(_WORDS.get(status, "Not done"), text), status_code=status)

    async def on_http(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        text = error.detail if error.status_code != 405 else f"{request.method} is not answered here."
        answer = self.refusal(request.url.path, error.status_code, text)
        answer.headers.update(error.headers or {})
        return answer

    async def on_failure(self, request: Request, _error: Exception) -> Response:
        """A bug of ours; what it was stands in our log only."""
        return self.refusal(request.url.path, 500, "This could not be answered; the log of specwatch says why.")

    async def on_store(self, request: Request, error: Exception) -> Response:
        """The store is locked, gone or damaged, or alerts could not be taken: try again."""
        return self.refusal(request.url.path, 503, f"This cannot be read or kept now: {error}")


def _page(page: str | None, because: str) -> Response:
    if page is None:
        raise HTTPException(404, f"{because[:1].upper()}{because[1:]}.")
    return HTMLResponse(page)


def _json(content: object) -> Response:
    return Response(json.dumps(content), media_type="application/json")  # ASCII only


def _health(because: str) -> Response:
    if because:
        return JSONResponse({"ok": False, "because": because}, status_code=503)
    return JSONResponse({"ok": True})
