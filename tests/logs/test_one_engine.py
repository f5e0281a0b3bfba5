"""Diagnose, audit and watch say the same of every kernel log that is kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.logs.kept_logs import KeptLog, kept_logs

from syncline.auditing.checks.kernel_log import kernel_log
from syncline.auditing.expect import Expect
from syncline.diagnosis import shipped_rules
from syncline.diagnosis.examples import found_in
from syncline.logs.form import form_of
from syncline.watch.rules.rail_rules import KernelLog


def _is_kernels(log: KeptLog) -> bool:
    forms = [form_of(line) for line in log.log.splitlines() if line.strip()]
    return all(form is not None and form.source == "kernel" for form in forms)


KERNEL_LOGS = {log.name: log.log for log in kept_logs() if _is_kernels(log)} | {
    rule.id: rule.example for rule in shipped_rules().values() if rule.id.startswith("kernel.") and rule.example
}


def test_there_are_enough() -> None:
    assert len(KERNEL_LOGS) >= 50


@pytest.mark.parametrize("name", KERNEL_LOGS)
def test_three_verbs_say_the_same(name: str) -> None:
    lines = KERNEL_LOGS[name].splitlines()
    said = set(found_in(KERNEL_LOGS[name], shipped_rules()))
    host = cast(Any, SimpleNamespace(kernel_log=tuple(lines), virtual_by=""))
    assert {finding.rule for finding in kernel_log(host, Expect())} == said
    context = cast(Any, SimpleNamespace(frame=SimpleNamespace(mono_s=1.0)))
    bad = KernelLog(lambda: lines).look(context).bad
    assert {tell().rule for tell in bad.values()} == said
