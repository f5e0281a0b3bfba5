"""The documentation keeps its word: commands are commands, every cluster in the guide builds, no link leads nowhere."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.exceptions import TyperException
from typer.main import get_command

from syncline.cli.shell.app import build
from syncline.describe.guide import pages
from syncline.fabric import load

ROOT = Path(__file__).parents[1]
TOP = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*(ROOT / name for name in TOP), *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```.*?^```[ \t]*$", re.MULTILINE | re.DOTALL)
GUIDE = ROOT / "docs" / "guides" / "cluster-file.md"
BLOCKS = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
HOSTS, NETWORK = "hosts: 64\nhost: 8 x H100\n", "network: rail-optimized NDR\n"
# What a piece of a description stands beside, by its first key.
REST = {
    "host": "hosts: 64\nnetwork: fat-tree NDR\n",
    "faults": HOSTS + NETWORK,
    "parts": HOSTS + "network: {topology: fat-tree, link: 400GbE, switch: our-tor}\n",
}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("\n", 1)[0])
def test_every_cluster_of_the_guide_builds(block: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(REST.get(block.partition(":")[0], "") + block, "utf-8")
    assert load(path).num_gpus > 0


def test_cables_by_name_are_what_the_guide_says(tmp_path: Path) -> None:
    (block,) = (block for block in BLOCKS if "topology: explicit" in block)
    path = tmp_path / "cluster.yaml"
    path.write_text(block, "utf-8")
    fabric = load(path)
    leaf = [fabric.link_name(int(i)) for i in fabric.out_links(fabric.device("leaf-a"))]
    assert leaf.count("leaf-a -> spine") == 4
    slow = fabric.out_links(fabric.device("host-01/nic-1"))
    assert 100e9 / 8 in fabric.links.rate_Bps[slow].tolist()


def slugs(page: Path) -> set[str]:
    """Return the anchors of a page: its headings as the site writes them."""
    text = FENCED.sub("", page.read_text("utf-8"))
    titles = (
        re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    )
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


def dead_links(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere in a clone: no such file, or no such heading in it."""
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", page.read_text("utf-8"))):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if "://" in link or link.startswith("mailto:"):
            continue
        if not target.exists() or (anchor and anchor not in slugs(target)):
            dead.append(link)
    return dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere_in_a_clone(page: Path) -> None:
    assert dead_links(page) == []


def test_a_link_to_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A title\n[a](page.md#a-title) [b](#b) [c](gone.md) [d](https://example.com)\n", "utf-8")
    assert dead_links(page) == ["#b", "gone.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    """A path in backticks is one of the repository, or of the package (`sim/reach.py`)."""
    named = re.findall(
        r"`([\w-]+/[\w./-]+\.(?:py|pyi|yaml|csv|cpp|h|md|txt|svg|sh))`", FENCED.sub("", page.read_text("utf-8"))
    )
    rooms = {path.name for root in (ROOT, ROOT / "src" / "syncline") for path in root.iterdir() if path.is_dir()}
    known = [name for name in named if name.split("/")[0] in rooms and "NAME" not in name]
    gone = [name for name in known if not ((ROOT / name).exists() or (ROOT / "src" / "syncline" / name).exists())]
    assert gone == []


def test_every_guide_that_is_named_exists() -> None:
    """`syncline guide NAME` in sources, pages and stored outputs names a page; so does every cite("NAME")."""
    sources = [path for kind in ("*.py", "*.yaml", "*.j2") for path in (ROOT / "src" / "syncline").rglob(kind)]
    read = {path: path.read_text("utf-8") for path in [*sources, *PAGES, *(ROOT / "examples" / "output").glob("*.txt")]}
    wrong = {
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in read.items()
        for name in re.findall(r"syncline guide ([a-z][\w/-]*)|\bcite\([\"']([^\"']+)[\"']\)", text)
        for name in filter(None, name)
        if name not in pages()
    }
    assert wrong == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_is_one(page: Path) -> None:
    """A line of a block can be typed as it stands; in running text a command may lack arguments, not its options."""
    wrong = {line: why for line, whole in commands(page.read_text("utf-8")) if (why := refusal(line, whole))}
    assert wrong == {}


def commands(text: str) -> Iterator[tuple[str, bool]]:
    text = re.sub(r"\\\n\s*", " ", text)
    for block in FENCED.findall(text):
        if not block.startswith("```picture"):  # the site completes and runs those
            yield from (
                (line, True) for line in re.findall(r"^(?:\$ )?(?:sudo )?(syncline [^\n]*)", block, re.MULTILINE)
            )
    yield from ((line, False) for line in re.findall(r"`(syncline [a-z][^`\n]*)`", FENCED.sub("", text)))


@cache
def command_line() -> Any:
    """Return the whole command line, built once."""
    return get_command(build())


def refusal(line: str, whole: bool) -> str:
    """Return why the command line does not take these words; nothing is run."""
    words = re.split(r" (?:[|>&;]|2>)", line)[0]
    if "..." in words:
        return ""
    command: Any = command_line()
    left = shlex.split(words, comments=True)[1:]
    context = None
    try:
        while True:
            context = command.make_context(command.name, left, parent=context)
            left = [*getattr(context, "_protected_args", ()), *context.args]
            if not hasattr(command, "commands") or not left:
                return ""
            _, command, left = command.resolve_command(context, left)
    except TyperException as error:
        missing = type(error).__name__ in ("MissingParameter", "NoArgsIsHelpError")
        return "" if missing and not whole else f"{type(error).__name__}: {error.format_message()[:200]}"
    except (SystemExit, typer.Exit):  # --help, --version
        return ""


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "```python" in page.read_text("utf-8")], ids=lambda p: p.stem
)
def test_python_on_a_page_uses_names_and_arguments_that_exist(page: Path) -> None:
    for block in re.findall(r"^```python[^\n]*\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        tree = ast.parse(block)
        import_module("syncline.torch")
        known: dict[str, Any] = {"syncline": import_module("syncline")}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("syncline"):
                module = import_module(str(node.module))
                names = [alias.name for alias in node.names if alias.name != "*"]
                known |= {name: getattr(module, name) for name in names}
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            taken = called(call.func, known)
            if taken is not None and not any(p.kind is p.VAR_KEYWORD for p in taken.values()):
                assert {word.arg for word in call.keywords} <= set(taken), ast.unparse(call)


def called(name: ast.expr, known: dict[str, Any]) -> Mapping[str, inspect.Parameter] | None:
    """Return the parameters of what is called, if it is ours; a name that we do not have raises."""
    words = ast.unparse(name).split(".")
    if words[0] not in known:
        return None
    found = known[words[0]]
    for word in words[1:]:
        found = getattr(found, word)
    return inspect.signature(found).parameters if callable(found) else None
