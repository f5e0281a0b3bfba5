"""The page and its numbers over HTTP: FastAPI, server-sent events, nothing from outside.

    app = make_app(feed, Access())
    server = Server(app, access); port = server.start(); server.close()

Every answer is bounded; a client that reads slowly loses frames, not the agent's time; one that says nothing is closed.
The page's script and style are allowed by their hashes alone, and no text can become markup.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import math
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import resources

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from sse_starlette import EventSourceResponse, ServerSentEvent

from syncline.describe.plain import JsonObject
from syncline.errors import WatchError
from syncline.version import __version__
from syncline.watch.feed import Feed
from syncline.watch.foreign import admit
from syncline.watch.picture import picture
from syncline.watch.serve.access import Access
from syncline.watch.serve.alertmanager import Webhook
from syncline.watch.serve.doorman import Doorman
from syncline.watch.serve.hub import MAX_LISTENERS
from syncline.watch.serve.notes import NoteRequest

COOKIE = "syncline_token"
KEEP_ALIVE_S = 10
SEND_S = 20.0
"""A browser that takes nothing for so long is let go."""
MAX_POINTS = 2000
MAX_BODY = 1 << 20
BODY_S = 5.0
SCRIPTS = ("state.js", "show.js", "draw.js", "fabric.js", "panels.js", "main.js")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def guarded_app(title: str, page: str, policy: str, access: Access) -> FastAPI:
    """Return an application that serves one page, to those whom `access` admits, with headers that protect it."""
    app = FastAPI(title=title, version=__version__, docs_url=None, redoc_url=None, openapi_url=None)

    @app.middleware("http")
    async def guard(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        response = refusal(request, access) or await call(request)
        for name, value in (*HEADERS.items(), ("Content-Security-Policy", policy)):
            response.headers.setdefault(name, value)
        return response

    @app.get("/")
    async def index(token: str = "") -> Response:
        response = HTMLResponse(page)
        if access.token and token:
            secure = bool(access.certificate)
            response.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=secure)
        return response

    return app


def make_app(feed: Feed, access: Access) -> FastAPI:
    """Return the application that serves a feed."""
    app = guarded_app("syncline watch", read_page(), page_policy(), access)
    pictures: dict[int, JsonObject] = {}

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
        expected, extent = feed.prediction.to_json(), dict(feed.history.extent()) if feed.history else {}
        about = {"version": __version__, "title": feed.title, "mode": feed.mode}
        return JSONResponse({**about, "expected": expected, "history": extent, "replay": feed.replay})

    @app.get("/api/frame")
    async def frame(since: int = -1, wait_s: float = Query(0.0, ge=0.0)) -> Response:
        if since >= 0 and wait_s > 0:
            await feed.hub.news(since, wait_s)
        return Response(feed.hub.text(), media_type="application/json")

    @app.get("/api/layout")
    def layout() -> JSONResponse:
        now = feed.hub.frame
        if now is None:
            return JSONResponse({"version": -1, "names": []})
        version = now.table.version
        if version not in pictures:
            pictures.clear()
            prediction = feed.prediction
            planned = [prediction.rate_of(name) for name in now.table.names] if prediction.link_rate_Bps else []
            pictures[version] = {**now.table.to_json(), "picture": picture(now.table), "predicted_Bps": planned}
        return JSONResponse(pictures[version])

    @app.get("/api/stream")
    async def stream() -> Response:
        listener = feed.hub.listen()
        if listener is None:
            busy = f"503: {MAX_LISTENERS} browsers are already connected; close one of them."
            return PlainTextResponse(busy, 503, headers={"Retry-After": "10"})

        async def events() -> AsyncIterator[ServerSentEvent]:
            try:
                if feed.hub.frame is not None:
                    yield ServerSentEvent(feed.hub.text(), event="frame", sep="\n")
                while listener.is_open:
                    message = await listener.next(KEEP_ALIVE_S)
                    if message is not None:
                        yield ServerSentEvent(message.data, event=message.event, sep="\n")
            finally:
                feed.hub.leave(listener)

        return EventSourceResponse(events(), ping=KEEP_ALIVE_S, send_timeout=SEND_S, sep="\n")

    _add_past(app, feed)
    _add_notes(app, feed)
    return app


def refusal(request: Request, access: Access) -> Response | None:
    """Return why a request is turned away, or None: a name that is not ours, no token, a page of somebody else's."""
    host = request.headers.get("host", "")
    if not access.knows_host(host):
        text = f'421: this agent answers to "{access.address}" or "localhost", not "{host[:80]}".'
        return PlainTextResponse(text, 421)
    if request.url.path != "/healthz" and not access.admits(_shown(request)):
        return PlainTextResponse("401: show the token as Authorization: Bearer TOKEN, or open /?token=TOKEN once.", 401)
    origin = request.headers.get("origin")
    if request.method not in ("GET", "HEAD") and origin is not None and origin.partition("://")[2] != host:
        return PlainTextResponse("403: another site's page may not write here.", 403)
    return None


async def read_body(request: Request) -> bytes:
    """Return a body that is small and comes in time; else a ValueError."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                size += len(part)
                if size > MAX_BODY:
                    raise ValueError(f"more than {MAX_BODY >> 20} MiB")
                parts.append(part)
    except TimeoutError:
        raise ValueError(f"no whole body within {BODY_S:g} s") from None
    return b"".join(parts)


def _add_notes(app: FastAPI, feed: Feed) -> None:
    @app.get("/api/notes")
    def notes() -> JSONResponse:
        if feed.hub.frame is not None:
            feed.notes.prune((*feed.hub.frame.alerts, *feed.inbox.alerts()), time.time())
        return JSONResponse({"notes": feed.notes.to_json()})

    @app.post("/api/notes")
    async def note(request: Request) -> Response:
        try:
            feed.notes.write(admit(NoteRequest, await read_body(request)))
        except ValueError as error:
            return PlainTextResponse(f"400: {error}.", 400)
        written = feed.notes.to_json()
        if feed.history is not None:
            feed.history.keep_notes(written)
        feed.hub.announce("notes", {"notes": written})
        return JSONResponse({"notes": written})

    @app.post("/api/alertmanager")
    async def alertmanager(request: Request) -> Response:
        try:
            num_up = feed.inbox.take(admit(Webhook, await read_body(request)))
        except ValueError as error:
            return PlainTextResponse(f"400: not an Alertmanager webhook: {error}.", 400)
        return JSONResponse({"up": num_up})


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


def _part(name: str) -> str:
    return (resources.files("syncline.watch") / "page" / name).read_text("utf-8")


def _style() -> str:
    return _part("page.css")


def _script() -> str:
    return "\n".join(map(_part, SCRIPTS))


def read_page() -> str:
    """Return the page with its style and scripts inside: one file, nothing fetched from anywhere."""
    return _part("page.html").replace("/*STYLE*/", _style()).replace("/*SCRIPT*/", _script())


def page_policy() -> str:
    """Return what a browser may run: this script and this style, by their hashes; text never becomes markup."""
    return (
        f"default-src 'none'; script-src '{source_hash(_script())}'; style-src '{source_hash(_style())}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


def source_hash(text: str) -> str:
    """Return the hash by which a policy allows a script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _shown(request: Request) -> str | None:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return token.strip()
    return request.query_params.get("token") or request.cookies.get(COOKIE)


class Server:
    """Serves an application in a thread of its own, until closed."""

    def __init__(self, app: FastAPI, access: Access, doorman: Doorman | None = None) -> None:
        import uvicorn

        self.doorman = doorman or Doorman()
        config = uvicorn.Config(
            app, host=access.address, port=access.port, log_level="critical", access_log=False, timeout_keep_alive=15,
            http=self.doorman.protocol, h11_max_incomplete_event_size=32 << 10,  # type: ignore[arg-type]
            ssl_certfile=access.certificate or None, ssl_keyfile=access.key or None, timeout_graceful_shutdown=1,
            server_header=False, lifespan="off", ws="none",
        )  # fmt: skip
        self._server = uvicorn.Server(config)
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
        self._thread.join(60.0)  # a busy machine may take a while; what is left running would be cut off in mid-answer

    def _run(self) -> None:
        # uvicorn leaves by SystemExit when it cannot bind; start() then says so.
        with contextlib.suppress(SystemExit, OSError):
            self._server.run()
