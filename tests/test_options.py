"""Options: shown by each function that takes them, refused by name where there are none."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import sweepkit as sk
from sweepkit.options import DEFAULTS, PoolOptions, RefineOptions, RunOptions


def doubled(a: int) -> int:
    return 2 * a


def test_signatures_show_each_option_with_its_default() -> None:
    for function, options, progress in (
        (sk.run, RunOptions, True),
        (sk.start, RunOptions, False),
        (sk.refine, RefineOptions, True),
        (sk.Pool.start, PoolOptions, False),
    ):
        shown = inspect.signature(function).parameters
        taken = get_type_hints(options)
        assert set(taken) <= set(shown)
        assert {name: shown[name].default for name in taken} == {
            name: progress if name == "progress" else DEFAULTS[name]  # type: ignore[literal-required]
            for name in taken
        }
        assert not any(one.kind == one.VAR_KEYWORD for one in shown.values())


def test_each_option_is_described_where_it_is_first_taken() -> None:
    text = inspect.getdoc(sk.run) or ""
    for name in get_type_hints(RunOptions):
        assert f"\n{name} : " in text, name


def test_a_word_that_is_no_option_is_refused_and_the_near_one_named(store: str) -> None:
    sweep = sk.Sweep(doubled, sk.grid(a=[1]))
    with pytest.raises(TypeError, match="run has no option 'max_error'; did you mean 'max_errors'"):
        sk.run(sweep, store, max_error=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="refine has no option 'was'"):
        sk.refine(sweep, store, was={})  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("max_errors", "1"),
        ("max_errors", -1),
        ("max_errors", 1.5),
        ("max_errors", float("nan")),
        ("max_errors", True),
        ("rerun", 3),
        ("rerun", None),
        ("rerun", [3]),
        ("snap", "x"),
        ("keep_scratch", 1),
        ("progress", 3),
        ("max_runs", 0),
        ("max_runs", 1.5),
        ("was", [1]),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused_by_name_before_anything_is_there(
    tmp_path: Path, option: str, given: Any
) -> None:
    sweep = sk.Sweep(lambda a: a * 1.0, sk.grid(a=[1, 2]))
    options: dict[str, Any] = {"backend": "sequential", "progress": False, option: given}
    with pytest.raises((TypeError, ValueError), match=f"^{option}(=| is )"):
        sk.run(sweep, tmp_path / "s.zarr", **options)
    assert list(tmp_path.iterdir()) == []
