"""Published claims about networks for training: the verdict of each, with the numbers that it rests on."""

from __future__ import annotations

from collections import Counter
from typing import Any

from syncline.cli.validate import answer_of
from syncline.validate.claims import judge, load_claims


def run() -> dict[str, Any]:
    """Judge every claim that ships."""
    verdicts = list(judge(load_claims(None), answer_of))
    return {
        "counted": dict(Counter(verdict.word for verdict in verdicts)),
        "claims": [verdict.to_json() for verdict in verdicts],
    }
