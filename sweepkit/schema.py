"""The part of JSON Schema that sweepkit's own documents use, checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["faults"]

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def faults(document: Any, schema: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """What in a document is not as its schema says, in words, each with its place.

    Knows ``type``, ``const``, ``enum``, ``minimum``, ``required``, ``properties``,
    ``additionalProperties`` and ``items``.
    """
    place = where or "the document"
    wanted = schema.get("type")
    if wanted is not None:
        names = [wanted] if isinstance(wanted, str) else list(wanted)
        if not any(_is(document, name) for name in names):
            yield f"{place} is {_short(document)}, not {' or '.join(names)}"
            return
    if "const" in schema and document != schema["const"]:
        yield f"{place} is {_short(document)}, not {schema['const']!r}"
    if "enum" in schema and document not in schema["enum"]:
        yield f"{place} is {_short(document)}, none of {', '.join(map(repr, schema['enum']))}"
    if "minimum" in schema and _is(document, "number") and document < schema["minimum"]:
        yield f"{place} is {document}, less than {schema['minimum']}"
    if isinstance(document, dict):
        yield from _object_faults(document, schema, where)
    if isinstance(document, list) and "items" in schema:
        for at, item in enumerate(document):
            yield from faults(item, schema["items"], f"{where}[{at}]")


def _object_faults(
    document: Mapping[str, Any], schema: Mapping[str, Any], where: str
) -> Iterator[str]:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in document:
            yield f"{where or 'the document'} lacks {name!r}"
    others = schema.get("additionalProperties", {})
    for name, value in document.items():
        inside = f"{where}.{name}" if where else name
        if name in known:
            yield from faults(value, known[name], inside)
        elif others is False:
            yield f"{inside} is not known"
        elif isinstance(others, Mapping):
            yield from faults(value, others, inside)


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, TYPES[name])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
