"""Datagrams between ranks in one process."""

from __future__ import annotations

import os
import resource

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
from syncline.runtime.alive.heartbeat import Datagrams

MANY = 1100


def test_beats_are_heard_in_a_process_that_has_a_thousand_files_open() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] != resource.RLIM_INFINITY and limits[1] < 2 * MANY:
        pytest.skip(f"this machine allows a process {limits[1]} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2 * MANY), limits[1]))
    files = [os.dup(0) for _ in range(MANY)]
    posts = [Datagrams(rank) for rank in range(2)]
    try:
        for post in posts:
            post.connect([each.address for each in posts])
        posts[0].say(b"here")
        assert posts[1].hear(5.0) == [b"here"]
        assert posts[0].hear(0.0) == []
    finally:
        for post in posts:
            post.close()
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
