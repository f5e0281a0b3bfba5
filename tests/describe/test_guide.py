"""What errors and manuals name can be read: every page they cite is there, and nothing cites a path of the checkout."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from syncline.cli.shell.app import run
from syncline.describe.guide import cite, pages, read_page, title
from syncline.errors import UsageError

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "syncline").rglob("*.py"))
PATH = re.compile(r"\bdocs/(?:guides|method|learn|cases)/")


def calls() -> list[tuple[str, ast.expr]]:
    texts = {path: path.read_text("utf-8") for path in SOURCES}
    found = [(path, ast.walk(ast.parse(text))) for path, text in texts.items() if "cite(" in text]
    return [
        (str(path.relative_to(ROOT)), node.args[0])
        for path, nodes in found
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "cite"
    ]


def test_every_cited_page_is_there_and_has_a_title() -> None:
    cited = {str(ast.literal_eval(page)) for _, page in calls()}
    assert len(cited) > 10 and cited <= set(pages())
    assert all(title(read_page(page)) for page in pages())


def test_no_message_names_a_path_of_the_checkout() -> None:
    """Docstrings and comments may: whoever reads them has the checkout."""
    named = []
    for path in SOURCES:
        if not PATH.search(text := path.read_text("utf-8")):
            continue
        tree = ast.parse(text)
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docs)
        named += [f"{path}:{node.lineno}" for node in texts if PATH.search(str(node.value))]
    for path in (ROOT / "src" / "syncline").rglob("*.yaml"):
        lines = [line for line in path.read_text("utf-8").splitlines() if not line.lstrip().startswith("#")]
        named += [f"{path}: {line}" for line in lines if PATH.search(line.partition(" # ")[0])]
    assert named == []


def test_a_wheel_brings_the_folders_that_are_read() -> None:
    rules = (ROOT / "CMakeLists.txt").read_text("utf-8")
    assert "install(DIRECTORY docs/guides docs/method DESTINATION syncline/pages" in rules
    sent = (ROOT / ".dockerignore").read_text("utf-8").splitlines()  # an image builds the wheel from what it is sent
    assert {"!docs/guides", "!docs/method"} <= set(sent)


def test_a_page_is_what_its_file_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert cite("method/bench") == "`syncline guide method/bench`"
    assert run(["guide", "method/bench"]) == 0
    text = (ROOT / "docs" / "method" / "bench.md").read_text("utf-8")
    assert capsys.readouterr().out == text
    assert run(["guide", "docs/method/bench.md", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["markdown"] == text


def test_without_a_page_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["guide"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:-2]] == list(pages())


def test_a_page_that_is_not_there_is_said_with_those_that_are_close() -> None:
    with pytest.raises(UsageError) as caught:
        read_page("clusterfile")
    assert (
        str(caught.value) == 'there is no page "clusterfile".\n  Close: cluster-file.\n  `syncline guide` lists them.'
    )


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "index", "method/index"])
def test_only_pages_are_read(name: str) -> None:
    with pytest.raises(UsageError, match="there is no page"):
        read_page(name)
