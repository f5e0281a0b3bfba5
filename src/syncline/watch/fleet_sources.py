"""Where a fleet's frames come from: other agents over HTTP, or the Prometheus server that collects from them."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from syncline.errors import WatchError
from syncline.watch.access import read_token

TIMEOUT_S = 3.0
MAX_BYTES = 64 << 20


class AgentReader:
    """Reads the newest frame of one agent; its layout only when that changed."""

    def __init__(self, url: str, token: str = "") -> None:
        self.name = url
        self._url = _checked(url)
        self._token = token
        self._layout: dict[str, Any] = {"version": None}

    @classmethod
    def of(cls, text: str) -> AgentReader:
        """Return the reader of `URL` or `URL#TOKENFILE`."""
        url, _, token_file = text.partition("#")
        return cls(url, read_token(token_file) if token_file else "")

    def read(self) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Return the agent's frame with its layout."""
        frame = self._get("/api/frame")
        if frame is None:
            return []
        if self._layout["version"] != frame["layout"]:
            self._layout = self._get("/api/layout")
        if self._layout["version"] != frame["layout"] or len(self._layout["names"]) != frame["num_links"]:
            return []
        return [(frame, self._layout)]

    def _get(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        return _fetch(self._url + path, headers)


class PrometheusReader:
    """Reads the newest values of every agent's links from a Prometheus server; collectives and ranks are not in it."""

    QUERIES: ClassVar[dict[str, str]] = {
        "rate_Bps": "syncline_link_rate_bytes_per_second",
        "capacity_Bps": "syncline_link_capacity_bytes_per_second",
        "peak": "syncline_link_peak_ratio",
        "up": "syncline_link_up",
    }

    def __init__(self, url: str) -> None:
        self.name = url
        self._url = _checked(url)
        self._layouts: dict[str, dict[str, Any]] = {}

    def read(self) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Return a frame for each instance that Prometheus scrapes."""
        tables: dict[str, dict[str, dict[str, float]]] = {}
        for column, query in self.QUERIES.items():
            for instance, link, value in self._query(query):
                tables.setdefault(instance, {}).setdefault(link, {})[column] = value
        return [self._frame(instance, links) for instance, links in sorted(tables.items())]

    def _query(self, query: str) -> list[tuple[str, str, float]]:
        answer = _fetch(f"{self._url}/api/v1/query?{urllib.parse.urlencode({'query': query})}", {})
        if not isinstance(answer, dict) or answer.get("status") != "success":
            raise ValueError("Prometheus did not answer the query")
        rows = answer["data"]["result"]
        return [(r["metric"].get("instance", ""), r["metric"]["link"], float(r["value"][1])) for r in rows]

    def _frame(self, instance: str, links: dict[str, dict[str, float]]) -> tuple[dict[str, Any], dict[str, Any]]:
        names = sorted(links)
        layout = self._layouts.get(instance)
        if layout is None or layout["names"] != names:
            ends = [name.partition(" -> ") for name in names]
            layout = self._layouts[instance] = {
                "version": time.monotonic_ns(),
                "names": names,
                "devices": names,
                "rail": [-1] * len(names),
                "capacity_Bps": [links[name].get("capacity_Bps") for name in names],
                "src": [src for src, _, _ in ends],
                "dst": [dst for _, _, dst in ends],
            }
        rate = np.array([links[name].get("rate_Bps", np.nan) for name in names])
        capacity = np.array([links[name].get("capacity_Bps", np.nan) for name in names])
        peak = np.array([links[name].get("peak", np.nan) for name in names]) * capacity
        up = [[i, 0.0] for i, name in enumerate(names) if links[name].get("up", 1.0) == 0.0]
        job = {"collectives": [], "steps": [], "ranks": [], "pairs_Bps": [], "ranks_per_cell": 1}
        frame = {
            "wall_s": time.time(),
            "num_links": len(names),
            "layout": layout["version"],
            "up": up,
            "job": job,
            "alerts": [],
            "rate_Bps": _text(rate),
            "peak_Bps": _text(peak),
            "health": {"host": instance},
        }
        return frame, layout


def _text(values: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(values.astype("<f4").tobytes()).decode()


def _checked(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise WatchError(f'"{url}" is not an address.', hint="Write http://host:9750.")
    return url.rstrip("/")


def _fetch(url: str, headers: Mapping[str, str]) -> Any:
    """Return the JSON at an address that `_checked` has seen; bounded in time and size."""
    request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            data = answer.read(MAX_BYTES + 1)
    except urllib.error.HTTPError as error:
        raise OSError(f"{error.code} {error.reason}") from None
    if len(data) > MAX_BYTES:
        raise ValueError("the answer is too large")
    return json.loads(data)
