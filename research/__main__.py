"""Run one study and print its figures: `python -m research training.score`."""

from __future__ import annotations

import importlib
import json
import sys

if len(sys.argv) != 2:
    sys.exit("usage: python -m research STUDY, such as training.score; research/README.md lists them")
print(json.dumps(importlib.import_module(f"research.{sys.argv[1]}").run(), indent=2))
