"""Today's date."""

from __future__ import annotations

import datetime
import os


def today() -> datetime.date:
    """Return today's date, or that of SOURCE_DATE_EPOCH where it is set, so that answers can be reproduced."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if epoch.isdigit():
        return datetime.datetime.fromtimestamp(int(epoch), datetime.UTC).date()
    return datetime.datetime.now(datetime.UTC).date()
