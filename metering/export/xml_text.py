"""Text that XML 1.0 can hold, and XML that is read without obeying it.

In: text for an element; bytes of a file that anyone may have written.
Out: text without forbidden characters; a parsed tree.
Never here: a document type declaration (and with it entities, external references, expansion
bombs, in any encoding) or an inclusion: such a file is refused, and nothing in it is expanded or
fetched. A schema location is read past: it is never followed.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

import defusedxml
from defusedxml import ElementTree as Defused

from metering.refusal import Refusal

__all__ = ["MAX_XML_BYTES", "parse_xml", "xml_text"]

MAX_XML_BYTES = 16 * 1024 * 1024
_INCLUSION = "{http://www.w3.org/2001/XInclude}"


def xml_text(value: str) -> str:
    """`value` with forbidden characters as spaces; a dash when nothing is left."""
    return "".join(char if _is_xml(char) else " " for char in value).strip() or "-"


def parse_xml(data: bytes) -> ET.Element:
    """The root element. Refuses what is not XML, too long, or asks for anything outside itself."""
    if len(data) > MAX_XML_BYTES:
        raise Refusal("xml", f"{len(data)} bytes", f"at most {MAX_XML_BYTES}")
    try:
        root: ET.Element = Defused.fromstring(data, forbid_dtd=True)
    except defusedxml.DefusedXmlException as error:
        raise Refusal(
            "xml", type(error).__name__, "no document type declaration",
            "an e-invoice has none; do not open this file",
        ) from error  # fmt: skip
    except (ET.ParseError, ValueError, LookupError) as error:
        # An unknown encoding is a LookupError or a ValueError.
        raise Refusal("xml", str(error), "well-formed XML") from error
    if any(str(node.tag).startswith(_INCLUSION) for node in root.iter()):
        raise Refusal("xml", "an inclusion of another document", "one document that has it all")
    return root


def _is_xml(char: str) -> bool:
    code = ord(char)
    return code in (9, 10, 13) or 32 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code > 0xFFFF
