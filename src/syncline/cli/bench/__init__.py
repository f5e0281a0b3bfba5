"""`syncline bench`."""

from syncline.cli.bench.verb import app

__all__ = ["app"]
