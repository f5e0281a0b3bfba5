"""Read a cluster from a file or by preset name, and write it back.

fabric = load("cluster.yaml")
fabric = load("dgx-h100-superpod")
"""

from __future__ import annotations

import difflib
import os
import tempfile
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from syncline.errors import DescriptionError, FileError, SynclineError
from syncline.fabric.build import build
from syncline.fabric.document import Document, Path_, read_document, read_text
from syncline.fabric.fabric import Fabric
from syncline.fabric.spec import ClusterSpec

_PRESETS = resources.files("syncline.fabric") / "presets"
_SUFFIXES = (".yaml", ".yml", ".json")


def load(name: str | os.PathLike[str]) -> Fabric:
    """Build the cluster that a file or preset describes."""
    document = read_cluster(name)
    spec = parse_cluster(document)
    try:
        return build(spec)
    except SynclineError as error:
        if not error.where:
            error.where = _place(document, error)
        raise


def read_cluster(name: str | os.PathLike[str]) -> Document:
    """Return the YAML document of a file or preset."""
    text = os.fspath(name)
    path = Path(text)
    if text in presets():
        return read_document((_PRESETS / f"{text}.yaml").read_text("utf-8"), f"preset {text}")
    if path.exists() or path.suffix in _SUFFIXES or os.sep in text:
        return read_document(read_text(path), text)
    close = difflib.get_close_matches(text, presets(), n=3, cutoff=0.4)
    raise FileError(
        f'there is no file or preset "{text}".',
        detail=f"Close presets: {', '.join(close)}." if close else "",
        hint="List presets with `syncline fabric list`.",
    )


def parse_cluster(document: Document) -> ClusterSpec:
    """Validate a document as a cluster description; errors name file, line and rule."""
    try:
        spec = ClusterSpec.model_validate(document.data)
    except ValidationError as error:
        raise _first_problem(document, error) from None
    if "name" not in spec.model_fields_set:
        stem = Path(document.source.removeprefix("preset ")).stem
        spec = spec.model_copy(update={"name": stem})
    return spec


def save(spec: ClusterSpec, path: str | os.PathLike[str]) -> None:
    """Write a description as YAML; the old file stays whole until the new one is complete."""
    data = spec.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110)
    write_text(Path(path), text)


def write_text(path: Path, text: str) -> None:
    """Replace a file's content at once, or leave it as it was."""
    if path.is_dir():
        raise FileError(f'"{path}" is a directory.', hint="Name a file inside it.")
    try:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
            file.write(text)
        os.replace(file.name, path)
    except OSError as error:
        raise FileError(f'cannot write "{path}": {error.strerror}.') from None


@cache
def presets() -> tuple[str, ...]:
    """Return the names of the clusters that come with syncline."""
    names = (entry.name for entry in _PRESETS.iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml")))


def _first_problem(document: Document, error: ValidationError) -> DescriptionError:
    problems = error.errors()
    first = min(problems, key=lambda p: -len(p["loc"]))
    path = _real_path(document, first["loc"])
    message = str(first["msg"]).removeprefix("Value error, ")
    key = ".".join(str(step) for step in path)
    hint = _HINTS.get(first["type"], "")
    if first["type"] == "extra_forbidden":
        message = f'unknown key "{path[-1] if path else key}"'
    elif first["type"] == "missing":
        message = f'"{first["loc"][-1]}" is missing'
    elif key and not message.startswith('"'):
        message = f"{key}: {message}"
    more = f"{len(problems) - 1} more problem(s) after this one." if len(problems) > 1 else ""
    return DescriptionError(f"{message}.", where=document.where(path), detail=more, hint=hint)


def _real_path(document: Document, loc: tuple[Any, ...]) -> Path_:
    """Drop what pydantic adds to a key path (union tags) and what short forms hide (`host` inside `hosts.0`)."""
    path: list[Any] = []
    for step in loc:
        if (*path, step) in document.lines:
            path.append(step)
        elif path == ["hosts"] and step == 0:
            path = []
        elif not path and step == "hosts":
            path = ["hosts"] if ("hosts",) in document.lines else []
    if loc and isinstance(loc[-1], str) and loc[-1] == "count" and ("hosts",) in document.lines and not path:
        path = ["hosts"]
    return tuple(path)


def _place(document: Document, error: SynclineError) -> str:
    """Point an error of the build at the line of the words it quotes, or else at the file."""
    quoted = error.message.split('"')[1::2]
    for words in quoted:
        for path, line in document.lines.items():
            value = _at(document.data, path)
            if isinstance(value, (str, int)) and str(value) == words:
                return f"{document.source} line {line}"
    return document.source


def _at(data: Any, path: Path_) -> Any:
    for step in path:
        if not isinstance(data, (dict, list)):
            return None
        data = data[step]  # type: ignore[index,call-overload,unused-ignore]
    return data


_HINTS = {
    "extra_forbidden": "Remove it, or see docs/guides/cluster-file.md for the keys.",
    "missing": "Add it; three lines are enough: hosts, host and network.",
    "union_tag_invalid": "Topologies are described in docs/guides/cluster-file.md.",
}
