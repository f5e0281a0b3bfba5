"""Pages made from the code: command line, public names, schemas, files to deploy, claims, gallery, notebooks."""

from __future__ import annotations

from blocks import Kept
from claims_page import claims_page
from deploy import deploy_page
from gallery import gallery_pages
from reference import api_page, command_pages, schema_page


def made_pages(kept: Kept) -> dict[str, str]:
    """Return every made page, by its place in the site."""
    return {
        "claims.md": claims_page(kept),
        "reference/api.md": api_page(),
        "reference/schemas.md": schema_page(),
        "reference/deploy.md": deploy_page(),
        **command_pages(),
        **gallery_pages(kept),
    }
