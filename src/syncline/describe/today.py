"""The day on which a question is asked."""

from __future__ import annotations

import datetime
import os


def today() -> datetime.date:
    """Return the day; where SOURCE_DATE_EPOCH is set, that one, so that an answer can be given again."""
    told = os.environ.get("SOURCE_DATE_EPOCH", "")
    if told.isdigit():
        return datetime.datetime.fromtimestamp(int(told), datetime.UTC).date()
    return datetime.datetime.now(datetime.UTC).date()
