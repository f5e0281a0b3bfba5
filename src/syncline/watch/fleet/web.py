"""Asking other servers: JSON over HTTP with bounds on size and time, no redirect followed, no token sent elsewhere."""

from __future__ import annotations

import ssl
import urllib.parse
from collections.abc import Mapping
from functools import cache

import httpx

from syncline.errors import WatchError

MAX_BYTES = 32 << 20
STEP_S = 3.0
"""The longest wait for one part of an answer; whoever asks sets the deadline of the whole."""


class Web:
    """One server that is asked. A redirect is an error, so that a token stays where it belongs."""

    def __init__(self, url: str, token: str = "") -> None:
        self.url = checked(url)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        limits = httpx.Limits(max_connections=4, max_keepalive_connections=4)
        timeout = httpx.Timeout(STEP_S, pool=None)  # questions that wait for their turn are not late
        verify = _trusted() if self.url.startswith("https") else False  # plain HTTP has nothing to verify

        def make() -> httpx.AsyncClient:
            return httpx.AsyncClient(
                headers=headers, timeout=timeout, limits=limits, follow_redirects=False, trust_env=False, verify=verify
            )

        self._make = make
        self._client: httpx.AsyncClient | None = None

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """Return the body of an answer of 200; an OSError says what else came."""
        if self._client is None:
            self._client = self._make()
        async with self._client.stream("GET", self.url + path, params=query) as answer:
            if answer.is_redirect:
                raise OSError(f"{answer.status_code}: it points elsewhere, which is not followed")
            if answer.status_code != 200:
                raise OSError(f"{answer.status_code} {answer.reason_phrase}"[:100])
            parts, size = [], 0
            async for part in answer.aiter_bytes():
                size += len(part)
                if size > MAX_BYTES:
                    raise OSError(f"the answer is larger than {MAX_BYTES >> 20} MiB")
                parts.append(part)
        return b"".join(parts)

    async def close(self) -> None:
        """Let go of the connection."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None


@cache
def _trusted() -> ssl.SSLContext:
    """Return whom to trust; read once, since it takes longer than an answer."""
    return ssl.create_default_context()


def checked(url: str) -> str:
    """Return an address without its trailing slash; a WatchError where it is none."""
    try:
        parts = urllib.parse.urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise WatchError(f'"{url}" is not an address.', hint="Write http://host:9750.")
    return url.rstrip("/")
