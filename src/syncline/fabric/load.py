"""Read a cluster from a file or by preset name, and write it back.

fabric = load("cluster.yaml")
fabric = load("dgx-h100-superpod")
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from syncline.describe.document import Document, Path_, read_document, read_text
from syncline.describe.files import write_text
from syncline.describe.guide import cite
from syncline.describe.mistakes import problem
from syncline.errors import DescriptionError, FileError, SynclineError
from syncline.fabric.build import build
from syncline.fabric.fabric import Fabric
from syncline.fabric.spec import ClusterSpec

_PRESETS = resources.files("syncline.fabric") / "presets"
_SUFFIXES = (".yaml", ".yml", ".json")


def load(name: str | os.PathLike[str] | Mapping[str, object]) -> Fabric:
    """Build the cluster that a file, a preset or a mapping describes.

    >>> load("h100-64-rail").num_gpus
    512
    >>> load({"hosts": 2, "host": "dgx-h100", "network": "rail-optimized NDR"}).num_gpus
    16
    """
    if not isinstance(name, (str, os.PathLike, Mapping)):
        raise DescriptionError(f"a cluster cannot be {type(name).__name__} ({str(name)[:40]}).",
                               hint="Give a preset's name, the path of a file, or a mapping.")  # fmt: skip
    document = described(name) if isinstance(name, Mapping) else read_cluster(name)
    spec = parse_cluster(document)
    try:
        return build(spec)
    except SynclineError as error:
        place = _place(document, f"{error.where} {error.message}")
        error.where = f"{place}, {error.where}" if error.where else place
        raise


def read_cluster(name: str | os.PathLike[str]) -> Document:
    """Return the YAML document of a file or preset."""
    text = os.fspath(name)
    if text in presets():
        return read_document((_PRESETS / f"{text}.yaml").read_text("utf-8"), f"preset {text}")
    if os.path.exists(text) or text.endswith(_SUFFIXES) or os.sep in text:
        return read_document(read_text(Path(text)), text)
    close = difflib.get_close_matches(text, presets(), n=3, cutoff=0.4)
    raise FileError(
        f'there is no file or preset "{text[:200]}".',
        detail=f"Close presets: {', '.join(close)}." if close else "",
        hint="List presets with `syncline fabric list`.",
    )


def described(data: Mapping[str, object]) -> Document:
    """Return a description given as a mapping, as a document: mistakes in it name their line in its YAML form."""
    try:
        text = yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True)
    except yaml.YAMLError as error:
        raise DescriptionError(f"the description holds something that is not plain data: {error}.") from None
    return read_document(text, "cluster")


def parse_cluster(document: Document) -> ClusterSpec:
    """Validate a document as a cluster description; errors name file, line and rule."""
    try:
        spec = ClusterSpec.model_validate(document.data)
    except ValidationError as error:
        raise problem(document, error, _GUIDE, ClusterSpec, path_of=_real_path, place=_place, hints=_HINTS) from None
    if "name" not in spec.model_fields_set:
        stem = Path(document.source.removeprefix("preset ")).stem
        spec = spec.model_copy(update={"name": stem})
    return spec


def save(spec: ClusterSpec, path: str | os.PathLike[str]) -> None:
    """Write a description as YAML; the old file stays whole until the new one is complete."""
    data = spec.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110)
    write_text(Path(path), text)


@cache
def presets() -> tuple[str, ...]:
    """Return the names of the clusters that come with syncline."""
    names = (entry.name for entry in _PRESETS.iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml")))


def _real_path(document: Document, loc: tuple[Any, ...]) -> Path_:
    """Return the key path as the file has it, without what pydantic adds (union tags, `hosts.0` of the short form)."""
    path: Path_ = ()
    for step in loc:
        if (*path, step) in document.lines:
            path = (*path, step)
        elif path[-1:] == ("hosts",) and step == 0 and (*path[:-1], "host") in document.lines:
            path = path[:-1]  # the one group that `hosts: 64` and `host: ...` stand for
    if loc[-1:] == ("count",) and (*path, "hosts") in document.lines:
        return (*path, "hosts")
    return path


def _place(document: Document, message: str) -> str:
    """Return the line of the "value" or `key` that a message quotes, or else of the network."""
    values = [(path, str(_at(document.data, path))) for path in document.lines]
    for words in filter(None, message.split('"')[1::2]):
        for fits in (str.__eq__, str.__contains__):
            places = [path for path, text in values if fits(text, words)]
            if places:
                return document.where(max(places, key=len))
    keys = {str(path[-1]): path for path in document.lines if path}
    path = next((keys[key] for key in message.split("`")[1::2] if key in keys), ("network",))
    return document.where(path)


def _at(data: Any, path: Path_) -> Any:
    for step in path:
        data = data[step]
    return data


_GUIDE = cite("cluster-file")
_HINTS = {
    "extra_forbidden": f"Remove it, or see {_GUIDE} for the keys.",
    "missing": "Add it; three lines are enough: hosts, host and network.",
    "union_tag_invalid": f"Topologies are described in {_GUIDE}.",
    "union_tag_not_found": "Add it: `topology: fat-tree`, say.",
}
