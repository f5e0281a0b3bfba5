"""Commands and scripts without the second that importing takes, each still in a process of its own.

One process imports what commands import and then only forks, so nothing that one command did is seen by the next. A
folder for the front of PATH holds a `syncline` and a `python` that hand their words, environment, folder and open files
to such a fork and end as it ends. That the installed command starts by itself, tests/cli/shell/test_app.py shows.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, NoReturn

import jsonschema

from syncline import questions
from syncline.cli.shell.app import Verbs
from syncline.cli.shell.verbs import VERBS
from syncline.describe.plain import json_text
from syncline.fabric.catalog import load_catalog
from syncline.questions.answer import Answer
from syncline.report import rendered

if TYPE_CHECKING:
    from rich.table import Table

# As little Python as can hand files over: about 20 ms.
ASKING = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as asker:
    asker.connect("/proc/self/fd/%d/door" % os.open({folder!r}, os.O_PATH))  # a socket's own path may have 107 bytes
    words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
    question = json.dumps([words, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(asker, [len(question).to_bytes(4, "big")], [0, 1, 2])
    asker.sendall(question)
    status = asker.recv(1)
    asker.recv(1)  # until the command has ended
sys.exit(status[0] if status else "the command ended without a status")
"""


class Warm:
    """A process that has imported every verb; the commands in `folder` run in forks of it until it is closed."""

    def __init__(self) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="syncline-warm-")
        self.folder = Path(self._scratch.name)
        for name in ("syncline", "python"):
            (self.folder / name).write_text(ASKING.format(python=sys.executable, folder=str(self.folder)))
            (self.folder / name).chmod(0o755)
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self.folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n", "the warm process did not come up"

    def close(self) -> None:
        """End the process: it serves as long as its standard input is open."""
        self._process.communicate()
        self._scratch.cleanup()


def _serve(folder: str) -> None:
    """Fork for everyone who comes to the door, until standard input is closed."""
    gc.freeze()
    forks: list[int] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{os.open(folder, os.O_PATH)}/door")
        listener.listen(64)
        print("ready", flush=True)
        while 0 not in select.select([0, listener.fileno()], [], [])[0]:
            asker, _ = listener.accept()
            with asker:
                forks.append(os.fork())
                if forks[-1] == 0:
                    _answer(asker)
            forks = [fork for fork in forks if os.waitpid(fork, os.WNOHANG) == (0, 0)]
    for fork in forks:  # whoever waited for these has given up
        os.kill(fork, signal.SIGKILL)
        os.waitpid(fork, 0)


def _answer(asker: socket.socket) -> NoReturn:
    """Be the command that is asked for, and tell its exit status."""
    size, files, _, _ = socket.recv_fds(asker, 4, 3)
    with asker.makefile("rb") as rest:
        words, folder, environment = json.loads(rest.read(int.from_bytes(size, "big")))
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    # What the fork inherits knows other files: whether they can be sought, whether they are terminals.
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    status = _status(words)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    asker.sendall(bytes([status & 255]))
    os._exit(0)


def _status(words: list[str]) -> int:
    """Run `syncline WORD...` or `python SCRIPT WORD...` and return its exit status."""
    try:
        if words[0] == "syncline":
            sys.argv = words
            import_module("syncline.cli.shell.start").main()
        else:
            sys.argv, sys.path[0] = words[1:], os.getcwd()
            runpy.run_path(words[1], run_name="__main__")
    except SystemExit as end:
        if not isinstance(end.code, str):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _warm_up() -> None:
    """Import what any verb imports, and read the catalogue."""
    for verb in VERBS:
        Verbs()[verb]
    for room in iter_modules(questions.__path__, "syncline.questions."):
        import_module(room.name)
    for name in ("networkx", "numpy.random", "rich.console", "rich.table", "scipy.optimize"):
        import_module(name)
    load_catalog()


def _validate_answers() -> None:
    """Have every answer that is shown fail unless its `--json` keeps its schema."""
    parts = rendered.parts

    def validated(answer: Answer, width: int) -> Iterable[str | Table]:
        if type(answer).to_json is Answer.to_json:
            jsonschema.validate(json.loads(json_text(answer.to_json())), type(answer).schema())
        return parts(answer, width)

    rendered.parts = validated


if __name__ == "__main__":
    _warm_up()
    _validate_answers()
    _serve(sys.argv[1])
