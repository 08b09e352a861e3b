"""Masks of grids: text in the grammar, or functions of named values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

if TYPE_CHECKING:
    from sweepkit.expressions import Expression

__all__ = ["Mask", "check_mask_names", "is_text", "mask_arguments", "mask_text"]

Mask: TypeAlias = "Expression | Callable[..., Any]"


def is_text(mask: Mask) -> TypeGuard[Expression]:
    return hasattr(mask, "text") and hasattr(mask, "holds")


def mask_text(mask: Mask) -> str:
    return mask.text if is_text(mask) else getattr(mask, "__name__", repr(mask))


def mask_arguments(mask: Callable[..., Any], known: Sequence[str]) -> tuple[str, ...]:
    """What a mask is to be given by name."""
    import inspect

    try:
        signature = inspect.signature(mask)
    except ValueError:
        raise TypeError(
            f"mask {mask_text(mask)!r} does not tell its arguments; wrap it in a lambda of the "
            "parameters"
        ) from None
    wanted: list[str] = []
    for one in signature.parameters.values():
        if one.kind is one.VAR_KEYWORD:
            return tuple(known)
        if one.name in known and one.kind is not one.POSITIONAL_ONLY:
            wanted.append(one.name)
        elif one.default is one.empty and one.kind is not one.VAR_POSITIONAL:
            raise TypeError(
                f"mask {mask_text(mask)!r} wants {one.name!r}, which is no parameter that it can "
                f"be given by name (there are {', '.join(known)})"
            )
    return tuple(wanted)


def check_mask_names(expression: Expression, names: Sequence[str]) -> None:
    expression.check(names)
