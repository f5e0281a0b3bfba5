"""Logs of real problems are told apart, and healthy ones are left in peace."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from syncline.diagnosis import shipped_rules
from syncline.diagnosis.examples import found_in

_SPEC = importlib.util.spec_from_file_location("kept_logs", Path(__file__).with_name("kept_logs.py"))
assert _SPEC is not None and _SPEC.loader is not None
kept = importlib.util.module_from_spec(_SPEC)
sys.modules.setdefault("kept_logs", kept)
_SPEC.loader.exec_module(kept)
LOGS = kept.kept_logs()


@pytest.fixture(scope="module")
def found() -> dict[str, set[str]]:
    book = shipped_rules()
    return {log.name: set(found_in(log.log, book)) for log in LOGS}


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_exactly_what_is_in_the_log_is_found(log, found: dict[str, set[str]]) -> None:
    assert found[log.name] == log.expect


@pytest.mark.parametrize("held_out", [False, True])
def test_recall_and_precision(held_out: bool, found: dict[str, set[str]]) -> None:
    logs = [log for log in LOGS if log.held_out == held_out]
    wanted = sum(len(log.expect) for log in logs)
    hit = sum(len(log.expect & found[log.name]) for log in logs)
    extra = [f"{log.name}: {found[log.name] - log.expect}" for log in logs if found[log.name] - log.expect]
    assert hit >= 0.95 * wanted
    assert extra == []


def test_there_are_enough_of_each() -> None:
    assert len([log for log in LOGS if log.expect]) >= 50
    assert len([log for log in LOGS if log.expect and log.held_out]) >= 15
    assert len([log for log in LOGS if not log.expect]) >= 8
    assert len({log.name for log in LOGS}) == len(LOGS)
    assert all(log.source.startswith("https://") for log in LOGS)
