"""The roll: the ranks of a team tell each other who and where they are, and see that beats pass."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from syncline.errors import SynchronizationError
from syncline.runtime.alive.agreement import exchange_json
from syncline.runtime.alive.arrival import host_name
from syncline.runtime.alive.heartbeat import Beat, BeatCarrier, Datagrams, neighbours, read_beat
from syncline.runtime.alive.verdict import Member
from syncline.runtime.wire.connections import resend_soon
from syncline.runtime.wire.team import Team

HELLO_S = 10.0
"""How long neighbours are greeted; on a busy machine one is late."""


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
    unheard = _hello(post, team, token)
    for rank, one in enumerate(exchange_json({"unheard": unheard}, team)):
        for peer in one["unheard"]:
            raise SynchronizationError(
                f"{members[rank]} hears no heartbeat of {members[peer]}: datagrams do not pass.",
                hint="Let UDP through between these hosts, or pass watch_s=0 to go without heartbeats.",
            )
    return Roll(team.rank, members, token, post, addresses)


def _hello(post: Datagrams, team: Team, token: str) -> list[int]:
    """Greet until every neighbour was heard; return those who were not."""
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
    return sorted(missing)
