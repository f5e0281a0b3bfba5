"""JSON schemas of what `--json` prints, one file an answer: derived from the fields of the answers' classes.

python tools/schemas.py            writes docs/reference/schemas/
python tools/schemas.py --check    exits with 1 where a file differs from its class (a test does this too)
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from pkgutil import walk_packages

from syncline import questions
from syncline.questions.answer import Answer

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference" / "schemas"


def answers(base: type[Answer] = Answer) -> Iterator[type[Answer]]:
    """Yield the classes of answers whose JSON derives from their fields."""
    for kind in base.__subclasses__():
        if hasattr(kind, "schema_name") and kind.to_json is Answer.to_json:
            yield kind
        yield from answers(kind)


def written() -> dict[str, str]:
    """Return the text of every schema, by file name."""
    for module in walk_packages(questions.__path__, "syncline.questions."):
        importlib.import_module(module.name)
    return {f"{kind.schema_name}.json": json.dumps(kind.schema(), indent=1) + "\n" for kind in answers()}


def main() -> None:
    """Write the schemas, or list the files that differ from them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    wanted = written()
    stored = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.json")}
    changed = sorted(name for name in wanted.keys() | stored.keys() if wanted.get(name) != stored.get(name))
    if check and changed:
        sys.exit(f"these differ from the classes of the answers: {', '.join(changed)}; run python tools/schemas.py")
    for name in changed:
        (FOLDER / name).unlink() if name not in wanted else (FOLDER / name).write_text(wanted[name], "utf-8")


if __name__ == "__main__":
    main()
