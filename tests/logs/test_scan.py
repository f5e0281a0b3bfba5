from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.logs.plain_search import PythonSearch

from syncline.diagnosis import shipped_rules
from syncline.logs.guard import MAX_LINE
from syncline.logs.needles import Needles
from syncline.logs.scan import MAX_CARRY, NativeSearch, Scanner, Search

SEARCHES: tuple[Callable[[Needles], Search], ...] = (NativeSearch, PythonSearch)
TEXTS = ("needle", "haystack", "NCCL WARN", "Xid (PCI", "eedl")


def scan(blocks: list[bytes], texts: tuple[str, ...] = TEXTS) -> tuple[list[tuple[int, str, frozenset[str]]], int]:
    found: list[tuple[int, str, frozenset[str]]] = []
    scanner = Scanner(texts, lambda n, text, hits: found.append((n, text, frozenset(texts[i] for i in hits))))
    scanner.scan(blocks)
    return found, scanner.num_lines


def naive(content: str) -> list[tuple[int, str, frozenset[str]]]:
    lines = content.split("\n")
    told = ((n, line, frozenset(t for t in TEXTS if t in line)) for n, line in enumerate(lines, start=1))
    return [(n, line, hits) for n, line, hits in told if hits]


def cut(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    at = 0
    for size in sizes:
        yield data[at : at + size]
        at += size
    yield data[at:]


LINE = st.lists(st.sampled_from([*TEXTS, "", " ", "x", "é", "need", "le", "NCCL", "0"]), max_size=6).map("".join)


@settings(max_examples=60, deadline=None)
@given(st.lists(LINE, max_size=20), st.lists(st.integers(1, 40), max_size=8))
def test_the_fast_search_finds_what_a_plain_one_does(lines: list[str], sizes: list[int]) -> None:
    content = "\n".join(lines)
    found, num_lines = scan([b for b in cut(content.encode(), sizes) if b])
    assert found == naive(content)
    assert num_lines == len(content.split("\n")) - (not content or content.endswith("\n"))


def test_random_bytes_do_not_disturb_it() -> None:
    noise = random.Random(1).randbytes(300_000)
    found, _ = scan([noise, b"\nhere is a needle\n", noise])
    assert [text for _, text, hits in found if "needle" in hits] == ["here is a needle"]


def test_a_line_without_end_is_searched_in_pieces_and_nothing_is_lost() -> None:
    piece = b"x" * (MAX_CARRY // 2)
    blocks = [piece, b"needle", piece, piece[:-3] + b"nee", b"dle", piece, b"haystack", piece, piece]
    found, num_lines = scan(blocks)
    assert [sorted(hits) for _, _, hits in found] == [["eedl", "needle"], ["eedl", "needle"], ["haystack"]]
    assert {n for n, _, _ in found} == {1}
    assert all(len(text) <= MAX_LINE for _, text, _ in found)
    assert num_lines == 1


def test_a_dropped_text_is_not_looked_for_again() -> None:
    found: list[int] = []

    def note(line: int, text: str, hits: object) -> None:
        found.append(line)
        scanner.drop(0)

    scanner = Scanner(("needle",), note)
    scanner.scan([b"needle\nneedle\n", b"needle\n"])
    assert found == [1]


def test_memory_stays_bounded_on_a_huge_line() -> None:
    seen = 0

    def blocks() -> Iterator[bytes]:
        nonlocal seen
        for _ in range(40):
            seen += 1
            yield b"z" * (1 << 20)

    import tracemalloc

    tracemalloc.start()
    Scanner(("needle",), lambda *_: None).scan(blocks())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == 40
    assert peak < 16 << 20


def _keep(found: list[tuple[int, str, list[int]]], number: int, text: str, hits: Sequence[int]) -> None:
    found.append((number, text, list(hits)))


def both(blocks: list[bytes], texts: tuple[str, ...]) -> list[tuple[list[tuple[int, str, list[int]]], int]]:
    """Return what the native search and its twin tell."""
    told = []
    for search in SEARCHES:
        found: list[tuple[int, str, list[int]]] = []
        scanner = Scanner(texts, partial(_keep, found), search=search)
        scanner.scan(blocks)
        told.append((found, scanner.num_lines))
    return told


@settings(max_examples=60, deadline=None)
@given(st.lists(LINE, max_size=20), st.lists(st.integers(1, 40), max_size=8), st.binary(max_size=200))
def test_the_NativeSearch_tells_what_its_twin_does(lines: list[str], sizes: list[int], noise: bytes) -> None:
    data = "\n".join(lines).encode() + noise
    first, second = both([block for block in cut(data, sizes) if block], TEXTS)
    assert first == second


def test_the_NativeSearch_and_its_twin_agree_on_random_bytes_and_floods() -> None:
    noise = random.Random(2).randbytes(700_000)
    flood = b"a needle in a NCCL WARN line\n" * 45_000
    texts = (*TEXTS, noise[1000:1005].hex(), "a line that is not there")
    first, second = both([noise, b"needle" * 3000, flood, flood, noise + b"\n", flood[:-1]], texts)
    assert first == second
    assert len(first[0]) > 20_000  # the flood rests, after that many finds


def test_the_NativeSearch_and_its_twin_agree_on_all_kept_logs() -> None:
    rules = shipped_rules().values()
    texts = tuple(dict.fromkeys(text for rule in rules for matcher in rule.matchers for text in matcher.texts))
    folder = Path(__file__).parent
    files = [folder / "logs.yaml", folder / "families.yaml", *sorted((folder / "blind").glob("*.yaml"))]
    logs = b"".join(path.read_bytes() for path in files)
    first, second = both(list(cut(logs, [5, 70_000, 300_000])), texts)
    assert first == second
    assert len(first[0]) > 3000


@pytest.mark.parametrize("search", SEARCHES)
def test_a_text_dropped_in_the_middle_of_a_block_is_told_no_more(search: Callable[[Needles], Search]) -> None:
    found: list[int] = []

    def note(line: int, text: str, hits: object) -> None:
        found.append(line)
        scanner.drop(0)

    scanner = Scanner(("needle", "other text"), note, search=search)
    scanner.scan([b"needle\nneedle\nother text\n", b"needle\n"])
    assert found == [1, 3]
