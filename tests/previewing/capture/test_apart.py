"""A process apart writes to nobody's disk and reaches nobody's socket."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

TRY = """
import socket, sys
from pathlib import Path
from syncline.previewing.capture import apart
folder, kept = map(Path, sys.argv[1:])
if apart.alone(kept) != (True, True):
    sys.exit(3)
(folder / "old").write_text("changed")
(folder / "new").write_text("new")
assert (folder / "old").read_text() + (folder / "new").read_text() == "changednew"
(kept / "out").write_text("kept")
with socket.socket(socket.AF_UNIX) as asks:
    try:
        asks.connect(str(folder / "answers"))
    except OSError:
        sys.exit(0)
sys.exit("a socket answered")
"""


def test_what_it_writes_is_gone_and_no_socket_answers_but_the_kept_folder_stays(tmp_path: Path) -> None:
    folder, kept = tmp_path / "folder", tmp_path / "kept"
    folder.mkdir()
    kept.mkdir()
    (folder / "old").write_text("as it was")
    with socket.socket(socket.AF_UNIX) as answers:
        answers.bind(str(folder / "answers"))
        answers.listen()
        ran = subprocess.run([sys.executable, "-c", TRY, folder, kept], capture_output=True, text=True, check=False)
    if ran.returncode == 3:
        pytest.skip("the kernel gives this user no mounts of its own")
    assert ran.returncode == 0, ran.stderr
    assert (folder / "old").read_text() == "as it was" and not (folder / "new").exists()
    assert (kept / "out").read_text() == "kept"
