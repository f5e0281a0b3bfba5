"""Where a fleet's frames come from: other agents over HTTP (`prometheus_source` has the Prometheus server)."""

from __future__ import annotations

from syncline.watch.fleet.door import ForeignFrame, ForeignLayout
from syncline.watch.fleet.presence import HostFrame
from syncline.watch.fleet.web import Web
from syncline.watch.foreign import admit
from syncline.watch.links import LinkTable
from syncline.watch.serve.access import read_token


class AgentReader:
    """Reads the newest frame of one agent; its layout only when that changed."""

    every_s = 0.4

    def __init__(self, url: str, token: str = "") -> None:
        self.name = url
        self._web = Web(url, token)
        self._table: LinkTable | None = None
        self._last: HostFrame | None = None

    @classmethod
    def of(cls, text: str) -> AgentReader:
        """Return the reader of `URL` or `URL#TOKENFILE`."""
        url, _, token_file = text.partition("#")
        return cls(url, read_token(token_file) if token_file else "")

    async def read(self, wait_s: float = 0.0) -> list[HostFrame]:
        """Return the agent's frame with its links; nothing while it has none, or while they change.

        The agent answers at once where its incidents are others than in the frame before, else after `wait_s`.
        """
        asked = {"since": str(self._last.seq), "wait_s": f"{wait_s:g}"} if self._last is not None else None
        data = await self._web.get("/api/frame", asked)
        if data.strip() == b"null":
            return []
        frame = admit(ForeignFrame, data)
        began_s, before = frame.health.began_s, self._last
        is_new = before is not None and (before.began_s != began_s or frame.seq < before.seq)
        # An agent that began anew counts its layouts from one again: the same number may mean other links.
        if self._table is None or is_new or self._table.version != frame.layout:
            self._table = admit(ForeignLayout, await self._web.get("/api/layout")).table()
        if self._table.version != frame.layout or len(self._table) != frame.num_links:
            self._table = None
            return []
        alerts = tuple(alert.incident() for alert in frame.alerts)
        self._last = HostFrame(
            frame.health.host, frame.wall_s, self._table, frame.load(), frame.job.state(), alerts,
            seq=frame.seq, began_s=began_s, agent=self.name, usd_per_day=frame.health.usd_per_day,
        )  # fmt: skip
        return [self._last]

    async def close(self) -> None:
        """Let go of the connection."""
        await self._web.close()
