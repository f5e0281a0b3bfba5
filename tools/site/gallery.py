"""The gallery: every example and notebook with its question, a thumbnail of its answer, its source and its output."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from blocks import ROOT, Kept
from notebook import notebook_page

EXAMPLES = ROOT / "examples"
#: The first word of an example's name -> its section; sections stand in this order.
GROUPS = {
    "decide": "Decisions", "plan": "Plans", "cost": "Money", "fabric": "Clusters", "schedule": "Collectives",
    "sim": "Simulation", "packet": "Packets", "step": "Training steps", "preview": "Training scripts",
    "serve": "Serving", "place": "Placement", "share": "Shared clusters", "scenario": "Shared clusters", "lab": "Rehearsals",
    "bench": "Live clusters", "diagnose": "Live clusters", "explain": "Live clusters",
}  # fmt: skip
LINES, COLUMNS = 15, 84
MOST_TITLE = 72


def gallery_pages(kept: Kept) -> dict[str, str]:
    """Return the gallery, one page for each example, and the thumbnails."""
    pages: dict[str, str] = {}
    cards: dict[str, list[str]] = {group: [] for group in GROUPS.values()}
    for path in sorted(p for p in EXAMPLES.iterdir() if p.suffix in (".py", ".sh")):
        output = (EXAMPLES / "output" / f"{path.stem}.txt").read_text("utf-8")
        question = question_of(path)
        pages[f"gallery/thumbnails/{path.stem}.svg"] = thumbnail(output)
        pages[f"gallery/{path.stem}.md"] = _page(path, question, output)
        cards[GROUPS[path.stem.split("_")[0]]].append(_card(path.stem, question))
    for path in sorted((EXAMPLES / "notebooks").glob("*.ipynb")):
        text, title, shown = notebook_page(path, kept)
        pages[f"gallery/{path.stem}.md"] = text
        pages[f"gallery/thumbnails/{path.stem}.svg"] = thumbnail(shown)
        cards.setdefault("Notebooks", []).append(_card(path.stem, title))
    count = sum(map(len, cards.values()))
    lines = [
        "# Gallery",
        "",
        f"{count} scripts and notebooks, each the answer to one question. All are run by the tests.",
        "",
    ]
    for group, entries in cards.items():
        lines += [f"## {group}", "", '<div class="gallery">', *entries, "</div>", ""]
    pages["gallery/index.md"] = "\n".join(lines) + "\n"
    return pages


def question_of(path: Path) -> str:
    """Return what an example is about: its docstring or its first comment."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        found = re.search(r'"""(.*?)(?:\n\n|""")', text, re.DOTALL)
        return " ".join(found[1].split()) if found else path.stem
    comment = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        comment.append(line.lstrip("# "))
    return " ".join(comment)


def thumbnail(output: str) -> str:
    """Return the first lines of an answer as a small picture."""
    rows = [line[:COLUMNS] for line in output.splitlines()[:LINES]]
    texts = "".join(
        f'<text x="10" y="{18 + 13 * n}" xml:space="preserve">{escape(row)}</text>' for n, row in enumerate(rows)
    )
    size = f'viewBox="0 0 {COLUMNS * 6 + 20} {LINES * 13 + 14}"'
    style = "text{font:10px ui-monospace,DejaVu Sans Mono,monospace;fill:#223}"
    frame = '<rect width="100%" height="100%" fill="#f7f8fa"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{style}</style>{frame}{texts}</svg>'


def _card(stem: str, question: str) -> str:
    picture = f'<img src="thumbnails/{stem}.svg" alt="what {stem} prints" loading="lazy">'
    return f'<a class="card" href="{stem}/">{picture}<span>{escape(question)}</span></a>'


def _page(path: Path, question: str, output: str) -> str:
    how = f"python {path.name}" if path.suffix == ".py" else f"bash {path.name}"
    kind = "python" if path.suffix == ".py" else "bash"
    source = path.read_text("utf-8").rstrip()
    return (
        f"# {_title(path.stem, question)}\n\n{question}\n\nRun it in `examples/`: `{how}`\n\n"
        f"## Answer\n\n````text\n{output.rstrip()}\n````\n\n## Source\n\n````{kind}\n{source}\n````\n"
    )


def _title(stem: str, question: str) -> str:
    """Return the question's first clause, or the name of the file where that is too long for a heading."""
    for least, ends in ((1, r"[.:;](?= )|\.?$"), (24, r"[,.:;](?= )")):
        clause = re.match(rf"(.{{{least},}}?)(\?|{ends})", question)
        if clause and len(clause[1]) <= MOST_TITLE:
            return clause[1] + "?" * (clause[2] == "?")
    return stem.replace("_", " ").capitalize()
