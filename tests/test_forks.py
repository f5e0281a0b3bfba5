"""A run in forks reports what every test did, whatever became of the fork."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFTEST = """
from tests.forks import Forks

def pytest_configure(config):
    config.pluginmanager.register(Forks(2))
"""
DIES = """
import os

def test_before(): pass
def test_dies(): os._exit(3)
def test_after(): pass
"""
FAILS = """
def test_fails(): assert 1 == 2
def test_passes(): pass
"""


def test_a_fork_that_ends_fails_its_test_and_the_rest_of_the_file_runs(tmp_path: Path) -> None:
    for name, text in (("conftest", CONFTEST), ("test_dies", DIES), ("test_fails", FAILS)):
        (tmp_path / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, f"--rootdir={tmp_path}", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert "the fork that ran it ended with status 3" in done.stdout
    assert "assert 1 == 2" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("2 failed, 3 passed")
    assert done.returncode == 1
