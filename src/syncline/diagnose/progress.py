"""Did the job go on? The end of a log tells: steps that count on, or results, after a line that looked like trouble."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

TAIL_BYTES = 1 << 16
_STEP = re.compile(
    r"(?i:\b(?:iteration|iter|global_step|step|epoch|batch)\b[\s:=\[\"'#]{0,6})(?P<step>\d{1,12})"
    r"|(?P<done>\d{1,12})/\d{1,12} \["
)
_RESULT = re.compile(r"\d ?(?:[GM]i?B/s|[GM]b/s|tokens/s\w*|samples/s\w*|it/s|ima?ge?s?/s\w*)(?:\W|$)")


class Tail:
    """The last bytes of a stream that goes by."""

    def __init__(self) -> None:
        self._data = b""

    def passing(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the blocks as they are."""
        for block in blocks:
            self._data = block[-TAIL_BYTES:] if len(block) >= TAIL_BYTES else (self._data + block)[-TAIL_BYTES:]
            yield block

    def went_on(self, num_lines: int) -> int:
        """Return a line in front of which nothing stopped the job: two steps or results stand there and after; or 0."""
        lines = self._data.decode("utf-8", "replace").removesuffix("\n").split("\n")
        last, marks = "", 0
        for back, line in enumerate(reversed(lines)):
            mark = _mark(line)
            if mark and mark != last:
                last, marks = mark, marks + 1
                if marks == 2:
                    return num_lines - back
        return 0


def _mark(line: str) -> str:
    step = _STEP.search(line)
    if step is not None:
        return step["step"] or step["done"]
    return line if _RESULT.search(line) else ""
