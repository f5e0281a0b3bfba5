"""The reference, from the code itself: every command's manual, every public name, every JSON schema."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import re
from typing import Any

from blocks import ROOT

import syncline
from syncline.cli.shell.app import build, run
from syncline.cli.shell.verbs import VERBS

SCHEMAS = ROOT / "docs" / "reference" / "schemas"
MOST_COLUMNS = 100


def command_pages() -> dict[str, str]:
    """Return one page with the manual of each verb, and one that lists them."""
    from typer.main import get_command

    group: Any = get_command(build())
    pages = {}
    rows = ["# Command line", "", "Every command has `--help` with examples and `--json` for one JSON object.", ""]
    rows += ["| verb | what it does |", "|---|---|"]
    for verb, line in VERBS.items():
        pages[f"reference/cli/{verb}.md"] = _verb_page(verb, line, group.commands[verb])
        rows.append(f"| [`syncline {verb}`](cli/{verb}.md) | {line} |")
    rows += ["", "Exit status: 0 done; 2 the input can be put right (the message says how); 130 interrupted; 1 two things that",
             "were compared differ (`fabric diff`, `fabric build --check`, `lab check`), or a bug of syncline. `audit`, and `bench` and `diagnose`",
             "when asked to, have the statuses of a monitoring check."]  # fmt: skip
    return {"reference/cli.md": "\n".join(rows) + "\n", **pages}


def _verb_page(verb: str, line: str, command: Any) -> str:
    parts = [f"# syncline {verb}", "", line, "", "```text", _manual(verb), "```"]
    for name in getattr(command, "commands", {}):
        parts += ["", f"## {verb} {name}", "", "```text", _manual(verb, name), "```"]
    return "\n".join(parts) + "\n"


def _manual(*words: str) -> str:
    out = io.StringIO()
    os.environ["COLUMNS"] = "100"
    try:
        with contextlib.redirect_stdout(out):
            run([*words, "--help"])
    finally:
        os.environ.pop("COLUMNS")
    return out.getvalue().strip()


def api_page() -> str:
    """Return the page of the public names: questions first, then what they take and give."""
    names = [name for name in syncline.__all__ if not name.startswith("_")]
    questions = [name for name in names if name[0].islower()]
    kinds = [name for name in names if name[0].isupper()]
    head = ["# Python", "", "`import syncline` gives every name below; each is loaded when it is first used. A question is a",
            "function, an answer a frozen value with `to_json()` (what `--json` prints), `str()` (what the command",
            "prints) and `page(path)`.", ""]  # fmt: skip
    body = ["## Questions", "", *_asked(questions), "## Values", "", *_entries(kinds)]
    return "\n".join([*head, *body]) + "\n"


def _asked(names: list[str]) -> list[str]:
    """Return each question: how it is called, what it says of itself, and its examples as code."""
    lines = []
    for name in names:
        question = syncline._found(name)
        lines += [f"### {name}", "", "```python", _call(name, question), "```", ""]
        lines += [_examples_as_code(inspect.getdoc(question) or ""), ""]
    return lines


def _call(name: str, question: Any) -> str:
    """Return how a question is called, one parameter a line where that is long."""
    signature = inspect.signature(question)
    parameters = list(signature.parameters.values())
    rows = [_parameter(parameter) for parameter in parameters]
    for at in [i for i, parameter in enumerate(parameters) if parameter.kind is parameter.KEYWORD_ONLY][:1]:
        rows.insert(at, "*")
    gives = f" -> {signature.return_annotation}"
    one = f"syncline.{name}({', '.join(rows)}){gives}"
    return (
        one if len(one) <= MOST_COLUMNS else "\n".join([f"syncline.{name}(", *(f"    {r}," for r in rows), f"){gives}"])
    )


def _parameter(parameter: inspect.Parameter) -> str:
    told = f"{parameter.name}: {parameter.annotation}"
    if parameter.default is parameter.empty:
        return told
    return f"{told} = {'...' if callable(parameter.default) else repr(parameter.default)}"


def _examples_as_code(text: str) -> str:
    """Return a docstring with its `>>>` lines and what they print in fences: Markdown takes them for quotations."""
    return re.sub(
        r"(?:^>>> .*\n?(?:^(?!\s*$).*\n?)*)+",
        lambda found: f"```pycon\n{found[0].rstrip()}\n```\n",
        text,
        flags=re.MULTILINE,
    )


def _entries(names: list[str]) -> list[str]:
    lines = []
    for name in names:
        held = "load" if name == "load_timeline" else name
        where = f"syncline.{syncline._WHERE[name]}.{held}"
        lines += [f"### {name}", "", f"::: {where}", "    options:", "      show_root_heading: false", ""]
    return lines


def schema_page() -> str:
    """Return the page of the schemas: the keys of each answer, with the file beside it."""
    lines = ["# JSON schemas", "", "What `--json` prints, by question. All keys are always there; what does not apply is null.",
             "`written` lists the files that the command wrote, where it wrote any.", ""]  # fmt: skip
    for path in sorted(SCHEMAS.glob("*.json")):
        schema = json.loads(path.read_text("utf-8"))
        lines += [f"## {path.stem}", "", f"[{path.name}](schemas/{path.name})", "", "| key | type |", "|---|---|"]
        defined = schema.get("$defs", {})
        lines += [f"| `{key}` | {_type(value, defined)} |" for key, value in schema["properties"].items()]
        lines.append("")
    return "\n".join(lines) + "\n"


def _type(value: dict[str, Any], defined: dict[str, Any]) -> str:
    if "$ref" in value:
        value = defined[value["$ref"].rpartition("/")[2]]
    if "anyOf" in value:
        return " or ".join(_type(each, defined) for each in value["anyOf"])
    word = str(value.get("type", "any"))
    if word == "array" and value.get("items"):
        return f"array of {_type(value['items'], defined)}"
    inner = value.get("properties")
    return f"object ({', '.join(f'`{name}`' for name in inner)})" if inner else word
