"""The server: who may look, what they get, and that nothing they do holds the agent up."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.watch.scenes import Job, frame, load, table

from syncline.errors import WatchError
from syncline.watch.feed import Feed
from syncline.watch.history import History
from syncline.watch.serve.access import Access, read_token
from syncline.watch.serve.doorman import Doorman
from syncline.watch.serve.hub import MAX_LISTENERS, QUEUE, Hub
from syncline.watch.serve.server import Server, make_app, read_page

LINKS = table(40)
TOKEN = "a-token-that-is-long-enough"


class Publisher:
    """A hub that is told a new frame every 20 ms, as an agent would."""

    def __init__(self, history: History | None = None) -> None:
        self.hub, self.history = Hub(), history
        self.num_looks = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        job, k = Job(), 0
        while not self._stop.wait(0.02):
            k += 1
            job.run_step(1000 + k * 0.25)
            one = replace(
                frame(k, LINKS, load(LINKS, (k % 10) / 10), job.view.state(1000 + k * 0.25)), health={"host": "h"}
            )
            if self.history and k % 5 == 0:
                self.history.add(one)
            self.hub.publish(one)
            self.num_looks += 1

    def goes_on(self) -> bool:
        """Tell whether twenty more looks come; one is due every 20 ms, and a busy machine may be late."""
        until, wanted = time.monotonic() + 120, self.num_looks + 20
        while self.num_looks < wanted and time.monotonic() < until:
            time.sleep(0.01)
        return self.num_looks >= wanted

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Publisher]]:
    history = History(tmp_path / "h.db")
    publisher = Publisher(history)
    access = Access(port=0)
    server = Server(make_app(Feed(publisher.hub, history, "test"), access), access)
    port = server.start()
    while publisher.hub.frame is None:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}", publisher
    server.close()
    publisher.close()
    history.close()


def test_the_page_is_one_file_that_fetches_nothing_from_elsewhere() -> None:
    page = read_page()
    assert page.count("<script>") == 1
    assert "/*STYLE*/" not in page
    assert "/*SCRIPT*/" not in page
    for word in ("http://", "https://", "src=", "@import", "eval("):
        assert word not in page, word


def test_everything_the_page_asks_for(served: tuple[str, Publisher]) -> None:
    url, _ = served
    with httpx.Client(base_url=url) as client:
        assert "syncline <b>watch</b>" in client.get("/").text
        assert client.get("/healthz").text == "ok"
        layout = client.get("/api/layout").json()
        assert layout["names"] == list(LINKS.names)
        assert len(layout["picture"]["links"]) == 40
        body = client.get("/api/frame").json()
        assert body["num_links"] == 40
        assert client.get("/api/hello").json()["title"] == "test"
        until = time.monotonic() + 120
        while not (extent := client.get("/api/extent").json())["num_frames"] and time.monotonic() < until:
            time.sleep(0.02)
        assert extent["num_frames"] > 0
        assert client.get("/api/at", params={"wall_s": extent["last_s"]}).json()["frame"]["num_links"] == 40
        assert client.get("/api/series", params={"link": LINKS.names[0]}).json()["rate_Bps"]
        assert client.get("/api/alerts").json() == {"alerts": []}
        assert client.get("/metrics").status_code == 404
        assert "default-src 'none'" in client.get("/").headers["content-security-policy"]


def test_frames_are_streamed(served: tuple[str, Publisher]) -> None:
    url, publisher = served
    seen = []
    with httpx.Client(base_url=url) as client, client.stream("GET", "/api/stream") as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                seen.append(json.loads(line[6:])["seq"])
            if len(seen) == 5:
                break
    assert seen == sorted(seen)
    until = time.monotonic() + 120
    while publisher.hub.num_listeners and time.monotonic() < until:
        time.sleep(0.02)
    assert publisher.hub.num_listeners == 0


def test_elsewhere_than_loopback_needs_a_token_or_tls(tmp_path: Path) -> None:
    with pytest.raises(WatchError, match="without a token would show this host to its whole network") as error:
        Access("0.0.0.0")
    assert "--token-file" in error.value.hint
    assert Access("0.0.0.0", token=TOKEN).url == "http://0.0.0.0:9750/"
    assert Access("::1").is_loopback
    assert not Access("example.org", token=TOKEN).is_loopback
    for bad, words in (
        ({"port": 70000}, "70000 is not a port"),
        ({"token": "short"}, "the token has 5 characters"),
        ({"certificate": "x"}, "both --tls-cert and --tls-key"),
        ({"certificate": "x", "key": "y"}, "TLS file cannot be read"),
        ({"certificate": __file__, "key": __file__}, "no certificate with its key"),
    ):
        with pytest.raises(WatchError, match=words):
            Access(**bad)  # type: ignore[arg-type]


def test_tls_alone_lets_nobody_in_and_an_empty_token_is_none(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    with pytest.raises(WatchError, match=r"listening on 0\.0\.0\.0 without a token"):
        Access("0.0.0.0", certificate=certificate, key=key)
    assert Access("0.0.0.0", token=TOKEN, certificate=certificate, key=key).url.startswith("https://")
    file = tmp_path / "token"
    file.write_text("\n")
    file.chmod(0o600)
    with pytest.raises(WatchError, match="this token file is empty"):
        read_token(file)


def make_certificate(folder: Path) -> tuple[str, str]:
    """Return a certificate of this machine's own making, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make a certificate with")
    certificate, key = folder / "c.pem", folder / "k.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "1", "-keyout",
         key, "-out", certificate], check=True, capture_output=True,
    )  # fmt: skip
    return str(certificate), str(key)


def test_a_loopback_address_answers_to_its_own_name() -> None:
    assert Access("127.0.0.2").knows_host("127.0.0.2:9750")
    assert Access("::1").knows_host("[::1]:9750")
    assert not Access("127.0.0.2").knows_host("evil.example:9750")


def test_the_page_runs_only_its_own_script(served: tuple[str, Publisher]) -> None:
    policy = httpx.get(served[0] + "/").headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "script-src 'sha256-" in policy
    assert "require-trusted-types-for 'script'" in policy
    page = read_page()
    assert not re.search(r"\son[a-z]+\s*=", page.partition("<script>")[0])  # no handlers in the markup
    assert "innerHTML" not in page
    assert "insertAdjacentHTML" not in page


def test_half_open_requests_cannot_keep_others_out() -> None:
    publisher = Publisher()
    access = Access(port=0)
    doorman = Doorman(idle_s=30.0, max_idle=50)
    server = Server(make_app(Feed(publisher.hub), access), access, doorman)
    port = server.start()
    clients = []
    try:
        for _ in range(300):
            client = socket.create_connection(("127.0.0.1", port), 10)
            client.send(b"GET / HTTP/1.1\r\nHost: loc")
            clients.append(client)
        for path in ("/healthz", "/", "/api/frame"):
            assert httpx.get(f"http://127.0.0.1:{port}{path}", timeout=30).status_code == 200
        assert wait_for(lambda: doorman.num_closed >= 240)
        assert httpx.get(f"http://127.0.0.1:{port}/", timeout=30).status_code == 200
    finally:
        for client in clients:
            client.close()
        server.close()
        publisher.close()


def test_a_request_that_drips_is_closed_in_time() -> None:
    access = Access(port=0)
    server = Server(make_app(Feed(Hub()), access), access, Doorman(idle_s=0.5))
    port = server.start()
    try:
        with closing(socket.create_connection(("127.0.0.1", port), 30)) as client:
            client.settimeout(30)
            with pytest.raises(OSError):
                for _ in range(2000):
                    client.send(b"G")
                    time.sleep(0.02)
    finally:
        server.close()


def test_alerts_are_acknowledged_and_silenced_with_a_reason(served: tuple[str, Publisher]) -> None:
    url, _ = served
    asked = {"kind": "silenced", "rule": "link.loss", "place": "a", "reason": "cable is ordered", "by": "Ada"}
    with httpx.Client(base_url=url) as client:
        assert client.post("/api/notes", json=asked).json()["notes"][0]["reason"] == "cable is ordered"
        assert client.get("/api/notes").json()["notes"][0]["kind"] == "silenced"
        assert client.post("/api/notes", json={**asked, "reason": " "}).text.startswith("400: give a reason")
        assert client.post("/api/notes", json={**asked, "kind": "x"}).status_code == 400
        elsewhere = {"Origin": "http://evil.example"}
        assert client.post("/api/notes", json=asked, headers=elsewhere).status_code == 403
        assert client.post("/api/notes", json={**asked, "kind": "none"}).json() == {"notes": []}


WEBHOOK: dict[str, Any] = {
    "version": "4", "status": "firing", "receiver": "syncline", "groupLabels": {}, "commonLabels": {},
    "commonAnnotations": {}, "externalURL": "http://alertmanager:9093", "groupKey": "{}:{}", "truncatedAlerts": 0,
    "alerts": [{
        "status": "firing", "labels": {"alertname": "NodeDown", "severity": "critical", "instance": "host-03:9100"},
        "annotations": {"summary": "host-03 is gone"}, "startsAt": "2026-01-02T03:04:05.678Z",
        "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "http://prometheus", "fingerprint": "abc",
    }],
}  # fmt: skip


def test_alertmanagers_webhook_is_shown_until_it_is_resolved(served: tuple[str, Publisher]) -> None:
    url, _ = served
    with httpx.Client(base_url=url) as client:
        assert client.post("/api/alertmanager", json=WEBHOOK).json() == {"up": 1}
        shown = wait_for(lambda: client.get("/api/frame").json()["alerts"])
        assert shown[0]["rule"] == "alertmanager.NodeDown"
        assert (shown[0]["place"], shown[0]["severity"]) == ("host-03", "critical")
        ended = {**WEBHOOK, "alerts": [{**WEBHOOK["alerts"][0], "status": "resolved"}]}
        assert client.post("/api/alertmanager", json=ended).json() == {"up": 0}
        assert wait_for(lambda: not client.get("/api/frame").json()["alerts"])
        assert client.post("/api/alertmanager", json={"alerts": [1]}).status_code == 400


def wait_for(look: Callable[[], Any]) -> Any:
    until = time.monotonic() + 30
    while not (found := look()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o644)
    with pytest.raises(WatchError, match="others can read this token"):
        read_token(file)
    file.chmod(0o600)
    assert read_token(file) == TOKEN


def test_the_token_opens_by_header_by_query_and_then_by_cookie() -> None:
    publisher = Publisher()
    access = Access(port=0, token=TOKEN)
    server = Server(make_app(Feed(publisher.hub), access), access)
    url = f"http://127.0.0.1:{server.start()}"
    try:
        with httpx.Client(base_url=url) as client:
            assert client.get("/").status_code == 401
            assert client.get("/api/frame", headers={"Authorization": "Bearer wrong-token-wrong"}).status_code == 401
            assert client.get("/healthz").status_code in (200, 503)
            assert client.get("/api/frame", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
            answer = client.get("/", params={"token": TOKEN})
            assert answer.status_code == 200
            assert "httponly" in answer.headers["set-cookie"].lower()
            assert client.get("/api/frame").status_code == 200
    finally:
        server.close()
        publisher.close()


def test_a_rebound_name_is_turned_away(served: tuple[str, Publisher]) -> None:
    url, _ = served
    assert httpx.get(url + "/api/frame", headers={"Host": "evil.example"}).status_code == 421


def test_a_port_that_is_taken_is_one_clear_error() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        access = Access(port=taken.getsockname()[1])
        with pytest.raises(WatchError, match="cannot listen on"):
            Server(make_app(Feed(Hub()), access), access).start()


def hostile(rng: random.Random) -> bytes:
    """Return one request that no good client makes."""
    paths = [
        "/api/series?link=" + "x" * 5000,
        "/api/series?points=-1&link=a",
        "/api/at?wall_s=nan",
        "/api/at?wall_s=1e999",
        "/../../etc/passwd",
        "/api/series?link=%00&start_s=inf",
        "/api/alerts?limit=99999999999",
        "/metrics?" + "a=1&" * 500,
        "/" + "%2e" * 200,
        "/api/layout",
    ]
    kind = rng.randrange(6)
    if kind == 0:
        return rng.randbytes(rng.randrange(1, 2000))
    if kind == 1:
        return b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"y" * rng.randrange(100_000)
    if kind == 2:
        return b"POST /api/frame HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n" + b"z" * 1000
    if kind == 3:
        return b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"  # never finished
    method = rng.choice(["GET", "PUT", "DELETE", "OPTIONS", "BREW"])
    return f"{method} {rng.choice(paths)} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()


def test_a_thousand_hostile_requests_do_not_stop_the_agent(served: tuple[str, Publisher]) -> None:
    url, publisher = served
    port = int(url.rpartition(":")[2])
    rng = random.Random(7)
    open_: list[socket.socket] = []
    for _ in range(1000):
        client = socket.create_connection(("127.0.0.1", port), 5)
        client.setblocking(False)
        try:
            client.send(hostile(rng))
        except OSError:
            client.close()
            continue
        open_.append(client)
        if len(open_) > 60:
            open_.pop(rng.randrange(len(open_))).close()
    assert publisher.goes_on()  # while they are still there
    for client in open_:
        client.close()
    assert httpx.get(url + "/api/frame").json()["num_links"] == 40


def test_a_client_that_does_not_read_loses_frames_and_holds_nobody_up(served: tuple[str, Publisher]) -> None:
    url, publisher = served
    port = int(url.rpartition(":")[2])
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    slow.connect(("127.0.0.1", port))
    slow.send(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    until = time.monotonic() + 120
    while not publisher.hub.num_listeners and time.monotonic() < until:
        time.sleep(0.01)
    assert publisher.goes_on()
    assert all(len(listener._queue) <= QUEUE for listener in publisher.hub._listeners)
    slow.close()


def test_listeners_are_bounded_and_a_stuck_one_is_given_up() -> None:
    async def many() -> None:
        hub = Hub()
        listeners = [hub.listen() for _ in range(MAX_LISTENERS)]
        assert hub.listen() is None
        stuck = listeners[0]
        assert stuck is not None
        for k in range(400):
            hub.publish(frame(k, LINKS, load(LINKS)))
            for each in listeners[1:]:
                assert each is not None
                while each._queue:
                    await each.next(0.1)
        assert not stuck.is_open
        assert stuck.num_lost > 200
        assert hub.num_listeners == MAX_LISTENERS - 1

    asyncio.run(many())
