"""The page and its numbers over HTTP: FastAPI, server-sent events, nothing from outside, nothing that can be changed.

    app = make_app(feed, Access())
    serve(app, Access(), stop)

Every answer is bounded; a client that reads slowly loses frames, not the agent's time.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from syncline import __version__
from syncline.errors import WatchError
from syncline.watch.access import Access
from syncline.watch.history import History
from syncline.watch.hub import Hub
from syncline.watch.picture import picture

COOKIE = "syncline_token"
KEEP_ALIVE_S = 10.0
MAX_POINTS = 2000
SCRIPTS = ("state.js", "draw.js", "panels.js", "main.js")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass
class Feed:
    """What is shown: the hub with the newest frame, the past, and what to say about both."""

    hub: Hub
    history: History | None = None
    title: str = ""
    mode: str = "live"
    expected: dict[str, Any] = field(default_factory=dict)
    registry: CollectorRegistry | None = None
    link_rate_Bps: Mapping[str, float] = field(default_factory=dict)
    replay: Mapping[str, float] | None = None
    """For a run that is played: which moments of the page are which of the run."""


def make_app(feed: Feed, access: Access) -> FastAPI:
    """Return the application that serves a feed."""
    app = FastAPI(title="syncline watch", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    page = read_page()
    pictures: dict[int, dict[str, Any]] = {}

    @app.middleware("http")
    async def guard(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        if not access.knows_host(request.headers.get("host")):
            return PlainTextResponse("This name does not lead here.", 421)
        if request.url.path != "/healthz" and not access.admits(_shown(request)):
            return PlainTextResponse("A token is needed: Authorization: Bearer TOKEN, or /?token=TOKEN.", 401)
        response = await call(request)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    @app.get("/")
    async def index(token: str = "") -> Response:
        response = HTMLResponse(page)
        if access.token and token:
            secure = bool(access.certificate)
            response.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=secure)
        return response

    @app.get("/healthz")
    async def healthz() -> Response:
        return PlainTextResponse("ok" if feed.hub.frame is not None else "no frame yet", 200 if feed.hub.frame else 503)

    @app.get("/metrics")
    def metrics() -> Response:
        if feed.registry is None:
            return PlainTextResponse("Nothing is counted here.", 404)
        return Response(generate_latest(feed.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/api/hello")
    def hello() -> JSONResponse:
        extent = feed.history.extent() if feed.history else {}
        body = {
            "version": __version__,
            "title": feed.title,
            "mode": feed.mode,
            "expected": feed.expected,
            "history": extent,
            "replay": feed.replay,
        }
        return JSONResponse(body)

    @app.get("/api/frame")
    async def frame() -> Response:
        return Response(feed.hub.text(), media_type="application/json")

    @app.get("/api/layout")
    def layout() -> JSONResponse:
        now = feed.hub.frame
        if now is None:
            return JSONResponse({"version": -1, "names": []})
        version = now.table.version
        if version not in pictures:
            pictures.clear()
            planned = [feed.link_rate_Bps.get(name) for name in now.table.names] if feed.link_rate_Bps else []
            pictures[version] = {**now.table.to_json(), "picture": picture(now.table), "predicted_Bps": planned}
        return JSONResponse(pictures[version])

    @app.get("/api/stream")
    async def stream() -> Response:
        listener = feed.hub.listen()
        if listener is None:
            return PlainTextResponse("Too many listen already.", 503, headers={"Retry-After": "10"})

        async def events() -> AsyncIterator[str]:
            try:
                if feed.hub.frame is not None:
                    yield f"event: frame\ndata: {feed.hub.text()}\n\n"
                while listener.is_open:
                    message = await listener.next(KEEP_ALIVE_S)
                    yield f"event: {message.event}\ndata: {message.data}\n\n" if message else ": still here\n\n"
            finally:
                feed.hub.leave(listener)

        return StreamingResponse(events(), media_type="text/event-stream")

    _add_past(app, feed)
    return app


def _add_past(app: FastAPI, feed: Feed) -> None:
    @app.get("/api/at")
    def at(wall_s: float) -> JSONResponse:
        found = feed.history.at(wall_s) if feed.history and math.isfinite(wall_s) else None
        return JSONResponse(found or {"error": "nothing is kept of that time"}, 200 if found else 404)

    @app.get("/api/series")
    def series(
        link: str = Query(max_length=300),
        start_s: float = 0.0,
        end_s: float = 1e12,
        points: int = Query(600, ge=1, le=MAX_POINTS),
    ) -> JSONResponse:
        if feed.history is None or not (math.isfinite(start_s) and math.isfinite(end_s)):
            return JSONResponse({"error": "no history is kept"}, 404)
        return JSONResponse(feed.history.series(link, start_s, end_s, points))

    @app.get("/api/alerts")
    def alerts(start_s: float = 0.0, end_s: float = 1e12, limit: int = Query(200, ge=1, le=1000)) -> JSONResponse:
        finite = math.isfinite(start_s) and math.isfinite(end_s)
        return JSONResponse({"alerts": feed.history.alerts(start_s, end_s, limit) if feed.history and finite else []})

    @app.get("/api/extent")
    def extent() -> JSONResponse:
        return JSONResponse(feed.history.extent() if feed.history else {})


def read_page() -> str:
    """Return the page with its style and scripts inside: one file, nothing fetched from anywhere."""
    folder = resources.files("syncline.watch") / "page"
    style = (folder / "page.css").read_text("utf-8")
    script = "\n".join((folder / name).read_text("utf-8") for name in SCRIPTS)
    page = (folder / "page.html").read_text("utf-8")
    return page.replace("/*STYLE*/", style).replace("/*SCRIPT*/", script)


def _shown(request: Request) -> str | None:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return token.strip()
    return request.query_params.get("token") or request.cookies.get(COOKIE)


class Server:
    """Serves an application in a thread of its own, until closed."""

    def __init__(self, app: FastAPI, access: Access) -> None:
        import uvicorn

        config = uvicorn.Config(
            app, host=access.address, port=access.port, log_level="critical", access_log=False, timeout_keep_alive=15,
            limit_concurrency=256, h11_max_incomplete_event_size=32 << 10, ssl_certfile=access.certificate or None,
            ssl_keyfile=access.key or None, timeout_graceful_shutdown=1, server_header=False, lifespan="off",
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="syncline-server", daemon=True)
        self._access = access

    def start(self) -> int:
        """Begin to listen; return the port."""
        self._thread.start()
        until = time.monotonic() + 10.0
        while not self._server.started and self._thread.is_alive() and time.monotonic() < until:
            time.sleep(0.01)
        if not self._server.started:
            hint = "Is the port taken? Choose another with --port."
            raise WatchError(f"cannot listen on {self._access.url}", hint=hint)
        return int(self._server.servers[0].sockets[0].getsockname()[1])

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(5.0)

    def _run(self) -> None:
        # uvicorn leaves by SystemExit when it cannot bind; start() then says so.
        with contextlib.suppress(SystemExit, OSError):
            self._server.run()
