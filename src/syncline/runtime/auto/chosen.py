"""Buckets that each travel in the codec that was chosen for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from syncline.runtime.auto.alone import WEIGHTS
from syncline.runtime.sync.averagers import Averagers
from syncline.runtime.sync.bucket import Bucket, Layout
from syncline.runtime.sync.settings import Settings
from syncline.runtime.wire.links import GroupLinks


class ChosenAveragers(Averagers):
    """Makes each bucket in the codec that was chosen for it, with error feedback where that codec wants it."""

    def __init__(self, settings: Settings, links: GroupLinks, codec_of: Callable[[int], str]) -> None:
        super().__init__(settings, links)
        self._asked = settings
        self._codec_of = codec_of

    def bucket(self, index: int, layout: Layout, buffer: torch.Tensor, codec: str) -> Bucket:
        """Return the bucket of this index, ready to be exchanged in its codec."""
        chosen = self._codec_of(index)
        self._settings = replace(self._asked, codec=chosen)
        if index >= WEIGHTS and self._asked.nan == "skip":  # weights that are no numbers do not go away
            self._settings = replace(self._settings, nan="raise")
        return super().bucket(index, layout, buffer, self._settings.codec)
