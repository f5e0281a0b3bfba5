"""`syncline guide`."""

from syncline.cli.guide.verb import RUNS_BARE, app

__all__ = ["RUNS_BARE", "app"]
