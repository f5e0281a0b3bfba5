"""Output of a process: the bytes of a pipe cut into lines, kept or handed on."""

from __future__ import annotations

import os

from syncline.lab.process import OnLine, Process


class Lines:
    """Cuts what a pipe delivers into lines."""

    def __init__(self, process: Process, stream: str, on_line: OnLine | None, keep: bool) -> None:
        self.process, self.stream, self.on_line, self.keep = process, stream, on_line, keep
        self.rest = b""

    def take(self, data: bytes) -> None:
        """Take the next bytes; none at the end."""
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop() if data else b""
        if not data:
            lines = [line for line in lines if line]
        for line in lines:
            self._line(line.decode("utf-8", "replace").removesuffix("\r"))

    def _line(self, line: str) -> None:
        if self.keep:
            self.process.lines[self.stream].append(line)
        if self.on_line is not None and self.process.line_error is None:
            try:
                self.on_line(self.process, self.stream, line)
            except Exception as error:  # kept for whoever waits: this thread serves all processes
                self.process.line_error = error


def pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the ends to read (which do not block) and the ends to write of two pipes, for stdout and stderr."""
    out_read, out_write = os.pipe2(os.O_CLOEXEC)
    err_read, err_write = os.pipe2(os.O_CLOEXEC)
    for end in (out_read, err_read):
        os.set_blocking(end, False)
    return (out_read, err_read), (out_write, err_write)
