"""YAML documents that remember their lines, read safely.

`read_document` turns a file into plain data plus a table from key paths to line numbers, so that a rule broken deep
inside a description is reported as `cluster.yaml line 41`. Only plain data comes out: tags, cycles, alias bombs,
duplicate keys and oversized files are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from syncline.errors import DescriptionError, FileError

MAX_BYTES = 32 * 2**20
MAX_NODES = 1_500_000
MAX_DEPTH = 64

Path_ = tuple[str | int, ...]
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Document:
    """Plain data read from a YAML text, with the line of every key."""

    data: Any
    lines: dict[Path_, int]
    source: str

    def where(self, path: Path_) -> str:
        """Return `file line N` for the deepest known prefix of a key path."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return f"{self.source} line {self.lines[path[:end]]}"
        return self.source


def read_text(path: Path, *, limit: int = MAX_BYTES) -> str:
    """Read a text file, or say in one sentence why it cannot be read."""
    try:
        if path.is_dir():
            raise FileError(f'"{path}" is a directory, not a file.', hint="Name the file inside it.")
        size = path.stat().st_size
        if size > limit:
            raise FileError(
                f'"{path}" has {size / 2**20:.0f} MiB; a description may have {limit / 2**20:.0f} MiB.',
                hint="Use a builder (network: {topology: ...}) instead of listing every cable.",
            )
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileError(f'there is no file "{path}".') from None
    except UnicodeDecodeError as error:
        raise FileError(f'"{path}" is not UTF-8 text (byte {error.start}).') from None
    except OSError as error:
        raise FileError(f'cannot read "{path}": {error.strerror}.') from None


def read_document(text: str, source: str) -> Document:
    """Parse one YAML document into plain data with line numbers."""
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = (error.problem_mark.line + 1) if error.problem_mark else 1
        raise DescriptionError(f"not valid YAML: {error.problem}.", where=f"{source} line {line}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise DescriptionError(f"not valid YAML: {error}.", where=source) from None
    except RecursionError:
        raise DescriptionError("the YAML is nested too deeply.", where=source) from None
    if node is None:
        raise DescriptionError(
            "the file is empty.", where=source, hint="Three lines are enough: hosts, host and network."
        )
    reader = _Reader(source)
    data = reader.read(node, ())
    return Document(data, reader.lines, source)


class _Reader:
    """Walks the node graph once; the stack of open nodes finds cycles, the counter finds alias bombs."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines: dict[Path_, int] = {}
        self._open: set[int] = set()
        self._num_nodes = 0
        self._scalars = yaml.SafeLoader("")

    def read(self, node: yaml.Node, path: Path_) -> Any:
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self._num_nodes += 1
        if self._num_nodes > MAX_NODES:
            raise self._error(f"expands to more than {MAX_NODES:,} values (aliases repeated too often).", line)
        if len(path) > MAX_DEPTH:
            raise self._error(f"is nested more than {MAX_DEPTH} levels deep.", line)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, line)
        if id(node) in self._open:
            raise self._error("is cyclic: an alias refers to something that contains it.", line)
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.read(item, (*path, i)) for i, item in enumerate(node.value)]
            assert isinstance(node, yaml.MappingNode)
            return self._mapping(node, path)
        finally:
            self._open.remove(id(node))

    def _mapping(self, node: yaml.MappingNode, path: Path_) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._error("has a key that is not plain text.", line)
            key = str(key_node.value)
            if key in result:
                raise self._error(f'has the key "{key}" twice.', line)
            self.lines[(*path, key)] = line
            result[key] = self.read(value_node, (*path, key))
        return result

    def _scalar(self, node: yaml.ScalarNode, line: int) -> Any:
        if node.tag not in _PLAIN_TAGS:
            raise self._error(f'has the tag "{node.tag}"; only plain text and numbers are read.', line)
        if node.tag == "tag:yaml.org,2002:timestamp":
            return node.value
        try:
            return self._scalars.construct_object(node)
        except (yaml.YAMLError, ValueError):
            raise self._error(f'has the value "{node.value}", which cannot be read.', line) from None

    def _error(self, text: str, line: int) -> DescriptionError:
        return DescriptionError(f"the description {text}", where=f"{self.source} line {line}")


_PLAIN_TAGS = {
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "timestamp", "value", "merge")
}
