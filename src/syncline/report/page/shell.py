"""What every page is made of: one document that fetches nothing, its content in `main`, where readers can go."""

from __future__ import annotations

from html import escape


def document(title: str, style: str, body: str) -> str:
    """Return a page; bars and boxes keep their colours in print."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{style}\n*{{print-color-adjust:exact;-webkit-print-color-adjust:exact}}"
        f"</style></head><body><main>{body}</main></body></html>\n"
    )
