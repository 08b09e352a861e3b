"""What an explorer shows, selects and filters, and which limits it judges by."""

from __future__ import annotations

from typing import Any

import param

__all__ = ["State"]


class State(param.Parameterized):
    """The state of an explorer, shared by Python and the browser.

    Each parameter can be set and watched from Python; the views follow.
    """

    x = param.String(default="", doc="Parameter along the map's horizontal axis.")
    y = param.String(default="", doc="Parameter along its vertical axis; empty for none.")
    by = param.String(default="", doc="Parameter of small multiples; empty for one map.")
    by2 = param.String(default="", doc="Second parameter of small multiples; empty for none.")
    at = param.Dict(default={}, doc="Parameter to position of its value; others are averaged over.")
    show = param.String(
        default="rate", doc="What colours the map: rate, status, margin:<name> or output:<name>."
    )
    limits = param.Dict(default={}, doc="Requirement's name to its limit; declared where missing.")
    filters = param.List(default=[], item_type=dict, doc="What is selected; combined by 'and'.")
    run = param.Integer(default=None, allow_None=True, doc="Open run, by flat position in C order.")
    theme: Any = param.Selector(default="auto", objects=["auto", "light", "dark"])
    output = param.String(default="", doc="Output whose distribution is shown.")
