"""Who is tested against whom, and when: a round-robin in which every host is busy in every round.

    rounds = tournament(hosts)                   # n - 1 rounds of disjoint pairs, each once in either direction
    rounds = apart(rounds, leaf)                 # no two flows of a round leave, or enter, the same leaf

A match is one flow from one host to another, measured alone on both hosts. `apart` costs rounds and buys certainty:
where the switches' hash is not known, two flows that leave a leaf together may share one uplink and be slow without
any fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from syncline.errors import BenchError


class Match(NamedTuple):
    """One flow between two hosts, by number."""

    src: int
    dst: int


Round = tuple[Match, ...]


def pairs(num_hosts: int) -> list[list[tuple[int, int]]]:
    """Return n - 1 rounds of n / 2 disjoint pairs, every pair once; of an odd number of hosts one rests each round."""
    if num_hosts < 2:
        raise BenchError(f"a tournament needs at least two hosts, not {num_hosts}.")
    seats: list[int | None] = list(range(num_hosts))
    if num_hosts % 2:
        seats.append(None)
    rounds = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        found = [
            (a, b) for a, b in zip(seats[:half], reversed(seats[half:]), strict=True) if a is not None and b is not None
        ]
        rounds.append(found)
        seats = [seats[0], seats[-1], *seats[1:-1]]  # the first stays, the others move on by one
    return rounds


def tournament(num_hosts: int, *, max_rounds: int = 0) -> list[Round]:
    """Return the rounds of directed matches: every ordered pair once, or as many pairings as `max_rounds` allows.

    Fewer rounds leave out pairings evenly, so that every host still meets near and far ones.
    """
    pairings = pairs(num_hosts)
    if max_rounds and 2 * len(pairings) > max_rounds:
        keep = max(1, max_rounds // 2)
        pairings = [pairings[i * len(pairings) // keep] for i in range(keep)]
    rounds: list[Round] = []
    for number, pairing in enumerate(pairings):
        # Who sends first alternates, so that senders and receivers are spread over the leaves.
        there = tuple(Match(*(pair if (number + i) % 2 else pair[::-1])) for i, pair in enumerate(pairing))
        rounds += [there, tuple(Match(match.dst, match.src) for match in there)]
    return rounds


def apart(rounds: Sequence[Round], leaf: Sequence[int]) -> list[Round]:
    """Return the rounds cut so that at most one flow leaves and one enters each leaf; within a leaf all go together."""
    found: list[Round] = []
    for round_ in rounds:
        near = [match for match in round_ if leaf[match.src] == leaf[match.dst]]
        batches: list[list[Match]] = [near] if near else []
        for match in round_:
            if leaf[match.src] != leaf[match.dst]:
                free = (batch for batch in batches if batch is not near and not _meets(match, batch, leaf))
                batch = next(free, None)
                if batch is None:
                    batches.append([match])
                else:
                    batch.append(match)
        found += [tuple(batch) for batch in batches]
    return found


def _meets(match: Match, batch: Sequence[Match], leaf: Sequence[int]) -> bool:
    return any(leaf[m.src] == leaf[match.src] or leaf[m.dst] == leaf[match.dst] for m in batch)


def one_by_one(matches: Sequence[Match]) -> list[Round]:
    """Return each match as a round of its own: slow and quiet, for the second pass."""
    return [(match,) for match in matches]
