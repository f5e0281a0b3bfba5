"""The roll: the ranks of a team tell each other who and where they are, and find out how their beats can travel."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from syncline.runtime.alive.agreement import exchange_json
from syncline.runtime.alive.arrival import host_name
from syncline.runtime.alive.heartbeat import Beat, BeatCarrier, Datagrams, StoreBeats, neighbours, read_beat
from syncline.runtime.alive.verdict import Member
from syncline.runtime.wire.connections import resend_soon
from syncline.runtime.wire.team import Team

HELLO_S = 3.0


@dataclass(frozen=True)
class Roll:
    """Who takes part: this rank's place, all members in their places, and how beats travel."""

    rank: int
    members: tuple[Member, ...]
    token: str
    post: BeatCarrier
    addresses: frozenset[str] = frozenset()
    """Of all hosts that take part."""


def meet(team: Team, patience_s: float) -> Roll:
    """Exchange names and addresses, and see whether datagrams pass between neighbours."""
    post = Datagrams(team.rank)
    try:
        return _introduce(post, team, patience_s)
    except BaseException:
        post.close()
        raise


def _introduce(post: Datagrams, team: Team, patience_s: float) -> Roll:
    own = {"host": host_name(), "address": post.address}
    everyone = exchange_json({**own, "token": os.urandom(8).hex()}, team)
    members = tuple(Member(rank, str(one["host"])) for rank, one in zip(team.names, everyone, strict=True))
    token = str(everyone[0]["token"])
    post.connect([(str(one["address"][0]), int(one["address"][1])) for one in everyone])
    addresses = frozenset(str(one["address"][0]) for one in everyone)
    resend_soon(addresses, patience_s)
    passed = _hello(post, team, token)
    if all(bool(one["passed"]) for one in exchange_json({"passed": passed}, team)):
        return Roll(team.rank, members, token, post, addresses)
    post.close()
    return Roll(team.rank, members, token, StoreBeats(team.store, team.rank, team.size, token), addresses)


def _hello(post: Datagrams, team: Team, token: str) -> bool:
    """Greet until every neighbour was heard; whether that happened."""
    missing = set(neighbours(team.rank, team.size))
    end_s = time.monotonic() + HELLO_S
    beat = Beat(team.rank).to_bytes(token)
    post.say(beat)
    while missing and time.monotonic() < end_s:
        post.say(beat)
        for data in post.hear(0.05):
            heard = read_beat(data, token, team.size)
            missing -= {heard.rank} if heard else set()
    post.say(beat)
    return not missing
