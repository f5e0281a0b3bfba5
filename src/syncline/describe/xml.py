"""XML from outside, read safely by lxml: no document type, no entity, nothing from the network.

lxml itself refuses elements nested more than 256 deep and values of more than 10 million characters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.errors import DescriptionError, SynclineError

if TYPE_CHECKING:
    from lxml.etree import _Element as Element


def parse_xml(text: str | bytes, source: str, error: type[SynclineError] = DescriptionError) -> Element:
    """Return the root of a document, its comments kept and blanks dropped; what is unsafe or malformed raises."""
    from lxml import etree

    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    refuse_doctype(data, source, error)
    parser = etree.XMLParser(encoding="utf-8", resolve_entities=False, no_network=True, remove_blank_text=True)
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as problem:
        reason = (problem.msg or "no element").rpartition(", line ")[0] or problem.msg
        raise error(f"not well-formed XML: {reason}.", where=f"{source} line {problem.lineno or 1}") from None
    for element in root.iter():
        stray = (element.tail or "") + (element.text or "" if isinstance(element.tag, str) else "")
        if stray.strip():
            problem_text = f'the XML has text between its elements ("{stray.strip()[:40]}").'
            raise error(problem_text, where=f"{source} line {element.sourceline}")
    return root


def refuse_doctype(data: bytes, source: str, error: type[SynclineError] = DescriptionError) -> None:
    """Raise where a text has a document type, through which entities come."""
    at = data.find(b"<!DOCTYPE")
    if at >= 0:
        line = data.count(b"\n", 0, at) + 1
        raise error(
            "the XML has a DOCTYPE, which is never read.",
            where=f"{source} line {line}",
            hint="Remove the <!DOCTYPE ...>.",
        )
