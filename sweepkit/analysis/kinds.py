"""How it fails: the kinds of failures and errors."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.coding import shown
from sweepkit.analysis.intervals import failure_interval
from sweepkit.analysis.naming import run_coords
from sweepkit.analysis.outcomes import ERRORED, FAILED, PASSED, Failed, UnanswerableError
from sweepkit.analysis.table import Table, table, varied
from sweepkit.status import NAMES

__all__ = ["kinds"]

_NORMAL = (
    (re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`"), "<text>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "<address>"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"(?<![\w<])(?:[A-Za-z]:)?(?:[\w.~-]*[/\\])+[\w.~-]+"), "<path>"),
    (re.compile(r"(?<![A-Za-z_])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b"), "<n>"),
    (re.compile(r"<n>(?:[,;\s]+<n>)+"), "<n>, ..."),
)
_FRAME = re.compile(r'File "([^"]+)", line \d+, in (\S+)')
_MAX_FRAMES_READ = 2_000
_MAX_REQUIREMENTS = 62

_Kind: TypeAlias = tuple[str, str, str]


def kinds(
    ds: xr.Dataset | Table,
    *,
    requirements: Any = None,
    failed: Failed = None,
) -> xr.Dataset:
    """How it fails: what runs that failed or errored have in common.

    Errors are of one kind if exception type, message without its numbers, names and paths, and
    the file and function of the last frame agree; failures, if they break the same requirements.

    Parameters
    ----------
    ds : Dataset or Table
    requirements, failed : optional
        As in `table`; without any, only errors have kinds.

    Returns
    -------
    Dataset
        Over the run dims: ``label``, 0 where a run passed or is unknown, then from 1 by falling
        count. Over ``kind``: ``family`` ("requirement", or the status of the runs), ``template``,
        ``frame`` (file and function; empty if not known), ``count``, ``share`` (of all that
        failed or errored), ``first_run`` (flat position in C order), ``first_point`` and
        ``example`` (text), ``where`` (the value at which it is most over-represented; empty if
        none surely is), ``lift`` (its rate there over its rate overall).
        ``attrs["n_kinds"]`` is 0 if nothing failed or errored.

    Raises
    ------
    UnanswerableError
        If no run has ended.

    References
    ----------
    Grouping by the message with its variables masked: P. He, J. Zhu, Z. Zheng and M. R. Lyu,
    ICWS 2017, 33-40; over-representation by the Wilson bound of the rate (`failure_interval`).

    Examples
    --------
    >>> ds = xr.Dataset({"status": ("a", [1, 2, 2]), "failed": ("a", [True, False, False]),
    ...                  "error": ("a", ["", "ValueError: step 3", "ValueError: step 41"])},
    ...                 coords={"a": [1, 2, 3]})
    >>> kinds(ds)["template"].values.tolist()
    ['ValueError: step <n>', 'failed']
    """
    t = table(ds, failed=failed, requirements=requirements, errors="fail")
    ended = (t.outcome == PASSED) | (t.outcome == FAILED) | (t.outcome == ERRORED)
    if not ended.any():
        raise UnanswerableError(f"none of {t.n} runs has ended, so none has failed or erred")
    errored, broke = np.flatnonzero(t.outcome == ERRORED), np.flatnonzero(t.outcome == FAILED)
    code_e, kinds_e = _errors(t, errored)
    code_b, kinds_b = _broken(t, broke)
    code = np.concatenate([code_e, code_b + len(kinds_e)])
    runs = np.concatenate([errored, broke])
    number = np.bincount(code, minlength=len(kinds_e) + len(kinds_b))
    first = np.full(len(number), t.n)
    np.minimum.at(first, code, runs)
    order = np.lexsort((first, -number))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(1, len(order) + 1)
    label = np.zeros(t.n, dtype=np.int64)
    label[runs] = rank[code]
    at = pd.DataFrame([*kinds_e, *kinds_b], columns=["family", "template", "frame"]).iloc[order]
    examples = _text_of(t, "error", first[order])
    where = [_where(t, label == k, ended) for k in range(1, len(order) + 1)]
    return _dataset(t, label, at, number[order], first[order], examples, where)


def _errors(t: Table, runs: NDArray[np.intp]) -> tuple[NDArray[np.int64], list[_Kind]]:
    """Kind of each run that erred, by number, and the kinds: family, template, frame."""
    if not len(runs):
        return np.array([], dtype=np.int64), []
    template = _templates(_text_of(t, "error", runs))
    status = np.asarray(t.ds["status"].values).reshape(-1)[runs].astype(np.int8)
    frames = _frames(t, runs, template)
    family = [NAMES[s] for s in status]
    codes, unique = pd.factorize(
        pd.MultiIndex.from_arrays([family, template, frames]).to_flat_index()
    )
    return codes.astype(np.int64), [(f, m or f, frame) for f, m, frame in unique]


def _templates(messages: list[str]) -> list[str]:
    known = {message: _template(message) for message in set(messages)}
    return [known[message] for message in messages]


def _template(message: str) -> str:
    """An error message with what varies between runs masked."""
    for pattern, mask in _NORMAL:
        message = pattern.sub(mask, message)
    return message.strip()


def _frames(t: Table, runs: NDArray[np.intp], templates: list[str]) -> list[str]:
    """File and function of the last frame in each run's log.

    Logs are text of any size, so of very many erring runs only some are read: the first of each
    message, then no more than 20 of it.
    """
    if "log" not in t.ds:
        return [""] * len(runs)
    if len(runs) > _MAX_FRAMES_READ:
        messages = pd.Series(templates)
        some = messages.groupby(messages, sort=False).head(20).index[:_MAX_FRAMES_READ]
        logs = _text_of(t, "log", runs[some])
        of = {m: _frame(log) for m, log in zip(messages[some][::-1], logs[::-1], strict=True)}
        return [of.get(m, "") for m in templates]
    return [_frame(log) for log in _text_of(t, "log", runs)]


def _frame(log: str) -> str:
    frames = _FRAME.findall(log)
    if not frames:
        return ""
    file, function = frames[-1]
    name = re.split(r"[/\\]", file)[-1]
    # A notebook cell's file is a number that changes with the kernel.
    name = "notebook" if "ipykernel" in file or name.startswith("<ipython") else name
    return f"{name} {function}"


def _text_of(t: Table, name: str, runs: NDArray[Any]) -> list[str]:
    if name not in t.ds or not len(runs):
        return [""] * len(runs)
    array = t.ds[name].transpose(*t.dims)
    if t.dims:
        index = np.unravel_index(runs, t.shape)
        picked = {d: xr.DataArray(i, dims="_run") for d, i in zip(t.dims, index, strict=True)}
        array = array.isel(picked)
    values = np.atleast_1d(np.asarray(array.values, dtype=object))
    return ["" if v is None or v != v else str(v) for v in values]


def _broken(t: Table, runs: NDArray[np.intp]) -> tuple[NDArray[np.int64], list[_Kind]]:
    """Which requirements each failed run breaks, by number, and the combinations of them."""
    if not len(runs):
        return np.array([], dtype=np.int64), []
    if not t.requirements:
        return np.zeros(len(runs), dtype=np.int64), [("requirement", "failed", "")]
    from sweepkit.verdicts import failed as failed_of

    code = np.zeros(len(runs), dtype=np.int64)
    for k, required in enumerate(t.requirements[:_MAX_REQUIREMENTS]):
        broken = failed_of(t.ds, [required]).transpose(*t.dims).values.reshape(-1)[runs]
        code |= (broken == 1).astype(np.int64) << k
    which, unique = pd.factorize(code)
    return which.astype(np.int64), [
        (
            "requirement",
            " and ".join(f"not {r.name}" for k, r in enumerate(t.requirements) if c >> k & 1),
            "",
        )
        for c in unique.tolist()
    ]


def _where(t: Table, mine: NDArray[np.bool_], ended: NDArray[np.bool_]) -> tuple[str, float]:
    """The value at which runs are surely most often of this kind, and how much more often."""
    overall = mine.sum() / ended.sum()
    parameters = [p.coarser(10) for p in varied(t) if p.n > 1]
    best, text, lift = 0.0, "", float("nan")
    tests = max(sum(p.n for p in parameters), 1)
    every = bool(ended.all())
    for p in parameters:
        n = np.bincount(p.codes if every else p.codes[ended], minlength=p.n)
        f = np.bincount(p.codes[mine], minlength=p.n)
        low = np.nan_to_num(failure_interval(f, n, level=1 - 0.05 / tests)[:, 0]) / overall
        k = int(np.argmax(low))
        if low[k] > max(best, 1.0):
            sign = "in" if p.binned else "="
            best, text = float(low[k]), f"{p.name} {sign} {p.label(k)}"
            lift = float(f[k] / n[k] / overall)
    return text, lift


def _dataset(
    t: Table,
    label: NDArray[np.int64],
    at: pd.DataFrame,
    number: NDArray[np.int64],
    first: NDArray[np.int64],
    examples: list[str],
    where: list[tuple[str, float]],
) -> xr.Dataset:
    points = [
        ", ".join(f"{name} {shown(value)}" for name, value in t.point(int(run)).items())
        for run in first
    ]
    own = {"units": "1"}

    def texts(values: Any) -> NDArray[Any]:
        array = np.empty(len(number), dtype=object)
        array[:] = list(values)
        return array

    variables: dict[str, Any] = {
        "family": ("kind", texts(at["family"])),
        "template": ("kind", texts(at["template"])),
        "frame": ("kind", texts(at["frame"])),
        "count": ("kind", number, {**own, "long_name": "runs"}),
        "share": ("kind", number / max(int(number.sum()), 1), own),
        "first_run": ("kind", first),
        "first_point": ("kind", texts(points)),
        "example": ("kind", texts(examples)),
        "where": ("kind", texts([text for text, _ in where])),
        "lift": ("kind", np.array([lift for _, lift in where], dtype=np.float64), own),
    }
    dims, coords, other = run_coords(t, {"label", "kind", *variables})
    return xr.Dataset(
        {
            "label": (dims, label.reshape(t.shape), {"long_name": "kind, 0 is none"}),
            **variables,
        },
        coords={**coords, "kind": np.arange(1, len(number) + 1)},
        attrs={
            "n_kinds": len(number),
            "note": "; ".join(
                x for x in ("lift is NaN where no value has surely more than its share", other) if x
            ),
        },
    )
