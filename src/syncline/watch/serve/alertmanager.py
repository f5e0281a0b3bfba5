"""Alertmanager both ways: its webhook as alerts on the page, and alerts of the page to its API."""

from __future__ import annotations

import datetime
import json
import threading
import time
import urllib.error
import urllib.request
from typing import Annotated, Any, Literal

from pydantic import Field

from syncline.describe.plain import JsonObject
from syncline.watch.fleet.web import checked
from syncline.watch.foreign import Foreign, Text, severity_of
from syncline.watch.incident import Incident, IncidentLog
from syncline.watch.rules.hold import Change
from syncline.watch.serve.hub import Hub

KEEP_S = 12 * 3600.0
"""An alert of others that is never resolved is forgotten after so long; Alertmanager repeats those that are up."""
MAX_INBOX = 500
EVERY_S = 30.0
Labels = Annotated[dict[str, Text], Field(max_length=100)]


class _Received(Foreign):
    status: Literal["firing", "resolved"]
    labels: Labels
    annotations: Labels = Field(default_factory=dict)
    startsAt: datetime.datetime | None = None
    generatorURL: Text = ""
    fingerprint: Text = ""


class Webhook(Foreign):
    """What Alertmanager posts to a `webhook_configs` receiver (version 4)."""

    alerts: Annotated[list[_Received], Field(max_length=1000)]


class Inbox:
    """Alerts that others sent, until they are resolved or old."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._alerts: dict[str, tuple[float, Incident]] = {}

    def take(self, webhook: Webhook) -> int:
        """Take a webhook's alerts; returns how many are up."""
        now_s = time.monotonic()
        with self._lock:
            for received in webhook.alerts:
                key = received.fingerprint or json.dumps(received.labels, sort_keys=True)
                if received.status == "resolved":
                    self._alerts.pop(key, None)
                elif len(self._alerts) < MAX_INBOX or key in self._alerts:
                    self._alerts[key] = (now_s, _alert(received))
            return len(self._alerts)

    def alerts(self) -> tuple[Incident, ...]:
        """Return those that are up."""
        now_s = time.monotonic()
        with self._lock:
            self._alerts = {key: row for key, row in self._alerts.items() if now_s - row[0] < KEEP_S}
            return tuple(alert for _, alert in self._alerts.values())


def _alert(received: _Received) -> Incident:
    labels, words = received.labels, received.annotations
    instance = labels.get("instance", labels.get("node", ""))
    host = instance if "://" in instance else instance.partition(":")[0]
    part = labels.get("device") or labels.get("interface") or labels.get("gpu") or ""
    beside = f"{host}/{part}" if host and part else host or part or "site"
    return Incident(
        f"alertmanager.{labels.get('alertname', 'alert')}", severity_of(labels.get("severity")),
        labels.get("place") or labels.get("link") or beside, words.get("summary", "firing"), "",
        tuple(f"{key}={value}" for key, value in sorted(labels.items()))[:12], words.get("description", ""),
        words.get("runbook_url", "") or "Alertmanager sent it; its own page has more.",
        since_s=received.startsAt.timestamp() if received.startsAt else None, host=host,
    )  # fmt: skip


class AlertmanagerSender:
    """Posts the alerts that are up to Alertmanager, when they change and every half minute, until closed."""

    def __init__(self, hub: Hub, url: str, page: str = "", *, every_s: float = EVERY_S) -> None:
        self._url = checked(url) + "/api/v2/alerts"
        self._hub, self._page, self._every_s = hub, page, every_s
        self._stop = threading.Event()
        self.problem = ""
        self.num_sent = 0
        self._log = IncidentLog()
        self._thread = threading.Thread(target=self._run, name="syncline-alertmanager", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, without resolving what is up: an agent that stops has not mended anything."""
        self._stop.set()
        self._thread.join(10.0)

    def _run(self) -> None:
        sent_s = 0.0
        while not self._stop.wait(min(1.0, self._every_s)):
            frame = self._hub.frame
            if frame is None:
                continue
            log = IncidentLog(dict(self._log.up))
            events = log.update(frame.alerts, frame.wall_s)
            if not events and time.monotonic() - sent_s < self._every_s:
                continue
            host = str(frame.health.get("host", ""))
            ended = [event.incident for event in events if event.change is Change.CLEARED]
            alerts = [posted(alert, host, self._page) for alert in log.up.values()]
            alerts += [resolved(posted(alert, host, self._page)) for alert in ended]
            if alerts:
                self._post(alerts)
            if not self.problem:
                self._log, sent_s = log, time.monotonic()

    def _post(self, alerts: list[JsonObject]) -> None:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url, json.dumps(alerts).encode(), headers)  # noqa: S310
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=5.0) as answer:
                answer.read(1 << 16)
            self.problem, self.num_sent = "", self.num_sent + len(alerts)
        except (OSError, ValueError) as error:
            self.problem = f"Alertmanager: {error}"[:200]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def posted(alert: Incident, host: str, page: str) -> JsonObject:
    """Return an incident as Alertmanager's API takes it: what tells incidents apart as labels, the rest beside them."""
    began = datetime.datetime.fromtimestamp(alert.since_s or time.time(), datetime.UTC)
    return {
        "labels": {
            "alertname": alert.rule, "severity": alert.severity.label, "place": alert.place,
            "instance": alert.host or host, "job": "syncline-watch",
        },
        "annotations": {
            "summary": f"{alert.place}: {alert.summary}",
            "description": " ".join(filter(None, (alert.meaning, alert.fix))),
            "evidence": "; ".join(alert.evidence),
            "effects": "; ".join(f"{effect.rule} at {effect.place}: {effect.observed}" for effect in alert.effects),
        },
        "startsAt": began.isoformat(),
        **({"generatorURL": page} if page else {}),
    }  # fmt: skip


def resolved(alert: JsonObject) -> JsonObject:
    """Return an alert that has ended."""
    return {**alert, "endsAt": datetime.datetime.now(datetime.UTC).isoformat()}
