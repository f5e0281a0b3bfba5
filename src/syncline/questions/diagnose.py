"""What went wrong first, from logs of any size?"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from syncline.describe.progress import Meter, Progress
from syncline.diagnosis import Cause, Diagnosis, LogRule, read_rules, shipped_rules
from syncline.diagnosis import diagnose as run
from syncline.diagnosis.examples import failing_examples, found_in
from syncline.errors import FileError, RuleError, UsageError
from syncline.finding import Severity
from syncline.logs.form import form_of
from syncline.logs.template import compile_template, template_of
from syncline.questions.answer import Answer, Parameter, question

if TYPE_CHECKING:
    from syncline.fabric import Fabric
    from syncline.questions.inputs import Cluster


@dataclass(frozen=True)
class DiagnosisAnswer(Answer):
    """First causes with the lines that show them, what they mean, what to do, and what they led to."""

    schema_name: ClassVar[str] = "diagnose"
    content: ClassVar[str] = "diagnosis"

    diagnosis: Diagnosis = field(repr=False)
    as_check: bool = field(default=False, repr=False)
    """Whether the exit status is that of a monitoring check."""

    @property
    def exit_status(self) -> int:
        return int(self.severity) if self.as_check else 0

    @property
    def causes(self) -> Sequence[Cause]:
        return self.diagnosis.causes

    @property
    def severity(self) -> Severity:
        """The worst of what was found."""
        return self.diagnosis.severity


@dataclass(frozen=True)
class ListedRule:
    """One rule of the logs."""

    id: str
    severity: str
    title: str
    fix: str


@dataclass(frozen=True)
class RuleList(Answer):
    """The rules that logs are read with."""

    schema_name: ClassVar[str] = "diagnose-rules"

    rules: tuple[ListedRule, ...]
    environment: tuple[str, ...]
    """Rules of NCCL's environment."""


@dataclass(frozen=True)
class NewRule(Answer):
    """A rule for one line of a log: what can be read off the line, and what only its author knows."""

    schema_name: ClassVar[str] = "diagnose-new-rule"

    id: str
    source: str
    says: str
    example: str
    known: tuple[str, ...]
    """Rules that match the line already."""


@dataclass(frozen=True)
class RuleCheck(Answer):
    """How many rules were tried on their own example."""

    schema_name: ClassVar[str] = "diagnose-check-rules"

    tried: int


def diagnose(
    logs: str | Path | Sequence[str | Path],
    *,
    rules: Sequence[str | Path] = (),
    cluster: Cluster | None = None,
    progress: Progress | None = None,
) -> DiagnosisAnswer:
    """Say what went wrong first in logs: files, folders, or "-" for stdin; plain or compressed."""
    named = [str(logs)] if isinstance(logs, (str, Path)) else [str(log) for log in logs]
    meter = Meter(progress)
    meter.expect(sum(Path(log).stat().st_size for log in named if Path(log).is_file()))
    return DiagnosisAnswer(run(named, rules=_book(rules), cluster=_built(cluster), on_bytes=meter.advance))


@question(
    "syncline diagnose job.log",
    "syncline diagnose slurm-4242.out /var/log/kern.log.gz nccl-logs/ --json",
    "dmesg | syncline diagnose - --cluster cluster.yaml",
    "syncline diagnose job.log --rules our-rules/ --exit nagios",
)
def diagnose_or_list(
    logs: Annotated[
        Sequence[str],
        Parameter("Files, folders, or - for stdin (read too where none is named); packed too.", metavar="LOG"),
    ] = (),
    *,
    rules: Annotated[Sequence[str], Parameter("Rules of your own, added to those that ship.", metavar="DIR")] = (),
    cluster: Annotated[
        str | None,
        Parameter("The cluster, if known.", names=("--cluster", "-c"), metavar="FILE|PRESET"),
    ] = None,
    exit_style: Annotated[
        str,
        Parameter("none (0 when done) or nagios (0 ok, 1 warning, 2 critical, 3 nothing read).", names=("--exit",)),
    ] = "none",
    list_rules: Annotated[bool, Parameter("List the rules instead.", names=("--list",), rare=True)] = False,
    check_rules: Annotated[bool, Parameter("Try every rule on its own example instead.", rare=True)] = False,
    new_rule: Annotated[
        str, Parameter("Write a rule for this line of a log, to be completed.", metavar="LINE", rare=True)
    ] = "",
    progress: Progress | None = None,
) -> DiagnosisAnswer | RuleList | RuleCheck | NewRule:
    """Say what went wrong first in NCCL, PyTorch, verbs and kernel logs of any size.

    Each cause comes with the lines that show it, what it means, what to do and how sure that is; what it led to stands
    below it. What cannot be read is listed. Nothing is changed or sent anywhere.
    """
    if exit_style not in ("none", "nagios"):
        raise UsageError(f'no exit style is called "{exit_style}".', hint="One of: none, nagios.")
    if new_rule:
        return draft_rule(new_rule)
    if list_rules:
        from syncline.auditing.environment import rule_ids

        listed = [rule for rule in _book(rules).values() if not rule.signal]
        return RuleList(
            tuple(ListedRule(rule.id, rule.severity.label, rule.title, rule.fix) for rule in listed), rule_ids()
        )
    if check_rules:
        return RuleCheck(check_examples(_book(rules)))
    if not logs and sys.stdin.isatty():
        raise UsageError("no log is named.", hint="Name files or folders, or - for stdin.")
    answer = replace(
        diagnose(logs or ("-",), rules=rules, cluster=cluster, progress=progress), as_check=exit_style == "nagios"
    )
    diagnosis = answer.diagnosis
    if diagnosis.nothing_read and exit_style == "none":
        empty = "there is nothing in it" if diagnosis.num_files else "the folder holds no file"
        why = "; ".join(f"{item.path}: {item.reason}" for item in diagnosis.unread[:3]) or empty
        raise FileError(
            f"no log could be read: {why}.", hint="Name files or folders that you may read, or - for stdin."
        )
    return answer


def draft_rule(line: str) -> NewRule:
    """Return a rule that matches a line: its source by its form, its varying words as holes."""
    line = line.strip()
    form = form_of(line)
    message = line[form.begins :].strip() if form else line
    says = template_of(message)
    try:
        compile_template(says)
    except ValueError as error:
        raise RuleError(
            f"no rule can be made of this line: its template {error}.", hint="Give a longer line."
        ) from None
    words = re.findall(r"[a-z]{3,}", re.sub(r"\{\w*(?::\w+)?\}", " ", says).lower())[:3]
    part = (form.part or form.source).split("#")[-1].lower() if form else "our"
    return NewRule(
        f"site.{re.sub(r'[^a-z0-9]+', '-', part).strip('-') or 'log'}.{'-'.join(words) or 'rule'}",
        form.source if form else "",
        says,
        line,
        tuple(rule for rule in found_in(line + "\n", shipped_rules()) if rule != "log.unexplained"),
    )


def _built(cluster: Cluster | None) -> Fabric | None:
    """Return the cluster as it is built; a log without one does not wait for what builds it."""
    if cluster is None:
        return None
    from syncline.questions.inputs import built

    return built(cluster)


def _book(rules: Sequence[str | Path]) -> Mapping[str, LogRule]:
    book = shipped_rules()
    for path in rules:
        book = read_rules(Path(path), book)
    return book


def check_examples(book: Mapping[str, LogRule]) -> int:
    """Return how many rules find their own example, or raise for the first that does not."""
    failing = failing_examples(book)
    if failing:
        id_, matched = next(iter(failing.items()))
        raise RuleError(
            f'the example of rule "{id_}" is not matched by it.',
            where=book[id_].where,
            detail=f"It gives: {', '.join(matched) or 'nothing'}. In all {len(failing)} rules fail on their example.",
            hint="Fix the pattern or the example.",
        )
    return sum(1 for rule in book.values() if rule.example)


COMMANDS = {"": diagnose_or_list}
RUNS_BARE = True
