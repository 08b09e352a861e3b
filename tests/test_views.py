"""Stand-alone views: each a HoloViews object, drawn true, with words where there is little."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr
from bokeh.models import GridPlot, Plot
from PIL import Image

import sweepkit as sk
from sweepkit.views.axis import axis_of

hv = pytest.importorskip("holoviews")
EVIL = "<script>alert(1)</script>"


def sweep(**more: Any) -> xr.Dataset:
    """A small grid with passes, failures, errors and pending runs, requirements and a trace."""
    gain, mass, law = [0.1, 0.2, 1.0, 10.0], [0.0, 1.0, 4.0], ["linear", "schräg", EVIL]
    shape = (4, 3, 3)
    i, j, k = np.indices(shape)
    steps = 500.0 - 100 * (i * j) - 10 * k
    status = np.ones(shape, np.int8)
    status[0, 0, 0], status[3, 2] = 2, 0
    steps[status != 1] = np.nan
    trace = np.broadcast_to(steps[..., None] * np.linspace(0, 1, 5), (*shape, 5)).copy()
    said = {"requirements": [{"text": "steps >= 300", "name": "steps"}]}
    return xr.Dataset(
        {
            "steps": (("gain", "mass", "law"), steps, {"units": "steps"}),
            "angle": (("gain", "mass", "law", "time"), trace, {"units": "rad"}),
            "status": (("gain", "mass", "law"), status),
        },
        coords={
            "gain": ("gain", gain, {"role": "design", "units": "N"}),
            "mass": ("mass", mass, {"role": "scenario", "units": "kg"}),
            "law": ("law", law, {"role": "scenario"}),
        },
        attrs={"sweepkit": json.dumps(said)},
    ).assign(**more)


VIEWS: dict[str, Callable[[Any, str], Any]] = {
    "failure_map": lambda ds, b: sk.failure_map(ds, "gain", "mass", backend=b),
    "margin": lambda ds, b: sk.failure_map(ds, "gain", "mass", of="margin", backend=b),
    "output": lambda ds, b: sk.failure_map(ds, "gain", "law", of="steps", backend=b),
    "status": lambda ds, b: sk.failure_map(ds, "gain", "mass", of="status", backend=b),
    "multiples": lambda ds, b: sk.failure_map(ds, "gain", "mass", by="law", backend=b),
    "sliders": lambda ds, b: sk.failure_map(ds, "gain", "mass", over=[], backend=b),
    "pair_matrix": lambda ds, b: sk.pair_matrix(ds, backend=b),
    "strips": lambda ds, b: sk.strips(ds, backend=b),
    "trade_off": lambda ds, b: sk.trade_off(ds, backend=b),
    "ecdf": lambda ds, b: sk.ecdf(ds, "steps", by="mass", backend=b),
    "fan": lambda ds, b: sk.fan(ds, "angle", singles=2, backend=b),
    "parallel": lambda ds, b: sk.parallel_coordinates(ds, backend=b),
    "how_sure": lambda ds, b: sk.how_sure(ds, backend=b),
}


def titles(figure: Any) -> str:
    """Titles of a figure and of its parts, as text on one line."""
    parts = figure.traverse(lambda one: one.opts.get("plot").kwargs.get("title", ""), [hv.Overlay])
    whole = figure.opts.get("plot").kwargs.get("title", "")
    return " ".join([whole, *parts]).replace("\n", " ")


SLOW_TO_DRAW = {"pair_matrix", "output", "margin", "sliders"}


@pytest.mark.parametrize("backend", ["bokeh", "matplotlib"])
@pytest.mark.parametrize("name", VIEWS)
def test_each_view_is_drawn_by_both_backends(name: str, backend: str) -> None:
    if backend == "matplotlib" and name in SLOW_TO_DRAW:
        pytest.skip("drawn as the failure map is")
    figure = VIEWS[name](sweep(), backend)
    assert isinstance(figure, hv.core.Dimensioned)
    assert hv.Store.current_backend == backend
    drawn = hv.render(figure, backend=backend)
    assert drawn is not None
    if backend == "bokeh" and name in ("pair_matrix", "strips", "multiples"):
        plots = list(drawn.select({"type": Plot}))
        assert len(plots) > 1
        room = {plot.min_border_left for plot in plots}
        assert len(room) == 1, "bokeh would take the room for labels from some of the frames"
        assert room.pop() >= 40
        columns = {
            column for grid in drawn.select({"type": GridPlot}) for *_, column in grid.children
        }
        widest = max(plot.frame_width + plot.min_border_left for plot in plots)
        assert len(columns) * (widest + 16) + 60 <= 700, "with a colour bar it would be cut"


def test_a_drawn_page_fetches_nothing_and_escapes_names() -> None:
    from bokeh.embed import file_html
    from bokeh.resources import INLINE

    figure = sk.failure_map(sweep(), "gain", "mass", by="law", backend="bokeh")
    page = file_html(hv.render(figure, backend="bokeh"), INLINE, "map")
    assert not re.search(r"<(script|link|img)[^>]*(src|href)=.http", page)
    assert EVIL not in page


def test_cells_hold_counts_and_only_cells_with_a_rate_are_coloured() -> None:
    figure = sk.failure_map(sweep(), "gain", "mass", backend="bokeh")
    coloured, bare, errors = (one.dframe() for one in list(figure)[:3])
    assert len(coloured) == 11
    assert bare[["x_text", "y_text"]].to_numpy().tolist() == [["10", "4"]]
    assert errors[["x_text", "share"]].empty if "share" in errors else len(errors) == 1
    at = coloured[(coloured["x_text"] == "1") & (coloured["y_text"] == "4")].iloc[0]
    assert at["failed"] == "3 of 3"
    assert at["value"] == 100
    foot = errors.iloc[0]
    assert foot["y1"] - foot["mass"] == pytest.approx((0.5 + 0.5) / 3)


def test_axes_are_true_to_values_and_logarithmic_where_that_is_more_even() -> None:
    axis = axis_of(xr.DataArray([0.0, 1.0, 4.0], dims="mass", name="mass"))
    assert axis.lower.tolist() == [-0.5, 0.5, 2.5]
    assert axis.upper.tolist() == [0.5, 2.5, 5.5]
    decades = axis_of(xr.DataArray([10.0, 0.1, 1.0], dims="gain", name="gain"))
    assert decades.logarithmic
    assert np.log10(decades.upper).tolist() == pytest.approx([1.5, -0.5, 0.5])
    apart = axis_of(xr.DataArray([0.0, 0.1, 1.0, 10.0], dims="gain", name="gain"))
    assert apart.logarithmic
    assert apart.texts[0] == "0"
    assert apart.at[0] == pytest.approx(0.01)
    assert "0 set apart" in apart.label
    days = axis_of(xr.DataArray(np.array(["2020-01-01", "2020-01-03"], "M8[ns]"), dims="d"))
    assert days.texts == ("2020-01-01", "2020-01-03")


def test_two_hundred_categories_have_labels_that_do_not_collide() -> None:
    names = [f"category number {k}" for k in range(200)]
    axis = axis_of(xr.DataArray(names, dims="law", name="law"))
    ticks = axis.ticks(480)
    assert 2 <= len(ticks) < 10
    ds = xr.Dataset({"failed": ("law", np.arange(200) % 3 == 0)}, coords={"law": names})
    assert len(next(iter(sk.failure_map(ds, backend="bokeh")))) == 200


@pytest.mark.parametrize(
    ("fails", "words"), [(False, "none of 6 finished runs fails"), (True, "all of 6 finished")]
)
def test_all_alike_is_said(fails: bool, words: str) -> None:
    failed = (("a", "b"), np.full((2, 3), fails))
    ds = xr.Dataset({"failed": failed}, coords={"a": [1, 2], "b": [1, 2, 3]})
    assert words in titles(sk.failure_map(ds, backend="bokeh"))
    assert "As declared" in titles(sk.strips(ds, backend="bokeh"))
    with pytest.raises(sk.UnanswerableError):
        sk.pair_matrix(ds, backend="bokeh")


def test_one_dim_and_one_valued_dims_are_drawn() -> None:
    ds = xr.Dataset({"failed": ("a", [True, False])}, coords={"a": [1, 2], "b": 3})
    assert len(next(iter(sk.failure_map(ds, backend="bokeh")))) == 2
    one = sweep().isel(gain=[1], mass=[1], law=[1])
    for name in ("failure_map", "status", "strips", "trade_off", "ecdf", "fan", "how_sure"):
        hv.render(VIEWS[name](one, "bokeh"), backend="bokeh")


def test_nothing_done_and_only_nan_say_so() -> None:
    ds = sweep()
    waiting = ds.assign(status=ds["status"] * 0, steps=ds["steps"] * np.nan)
    assert "nothing has run yet" in titles(sk.failure_map(waiting, "gain", "mass", backend="bokeh"))
    with pytest.raises(sk.UnanswerableError, match="no finished run"):
        sk.ecdf(ds.assign(steps=ds["steps"] * np.nan), "steps", backend="bokeh")
    with pytest.raises(sk.UnanswerableError, match="no finished run of 36 has a number in 'angle'"):
        sk.fan(ds.assign(angle=ds["angle"] * np.nan), "angle", backend="bokeh")


def test_what_cannot_be_drawn_is_said_before() -> None:
    ds = sweep()
    with pytest.raises(ValueError, match="x or y='gian' is no parameter; there are 'gain'"):
        sk.failure_map(ds, "gian", "mass")
    with pytest.raises(ValueError, match="of='step' is none of 'failed'"):
        sk.failure_map(ds, "gain", "mass", of="step")
    with pytest.raises(ValueError, match="give two parameters"):
        sk.failure_map(ds, "gain", "gain")
    with pytest.raises(ValueError, match="is neither 'bokeh' nor 'matplotlib'"):
        sk.how_sure(ds, backend="plotly")
    with pytest.raises(ValueError, match=r"has 0 dims of its own; .* traces are 'angle'"):
        sk.fan(ds, "steps")
    with pytest.raises(ValueError, match="y='best' is none of 'pass_share'"):
        sk.trade_off(ds, y="best")
    wide = xr.Dataset(
        {"failed": (("a", "b", "c"), np.ones((30, 2, 2), bool))},
        coords={"a": range(30), "b": [1, 2], "c": [1, 2]},
    )
    with pytest.raises(ValueError, match="makes 30 maps; at most 24"):
        sk.failure_map(wide, "b", "c", by="a")


def test_limits_and_band_are_in_the_distribution() -> None:
    figure = sk.ecdf(sweep(), "steps", backend="bokeh")
    assert [one.data for one in figure.traverse(lambda e: e, [hv.VLine])] == [300]
    assert "steps >= 300" in titles(figure)
    assert figure.traverse(lambda e: e, [hv.Area])
    ds = sweep()
    del ds.attrs["sweepkit"]
    assert not sk.ecdf(ds, "steps", backend="bokeh").traverse(lambda e: e, [hv.VLine])


def test_many_runs_are_sampled_by_outcome_and_the_title_says_so() -> None:
    failed = np.zeros(20_000, bool)
    failed[:40] = True
    ds = xr.Dataset(
        {"failed": ("run", failed)},
        coords={"a": ("run", np.arange(20_000.0)), "b": ("run", np.arange(20_000.0)[::-1])},
    )
    figure = sk.parallel_coordinates(ds, most=600, backend="bokeh")
    assert "pass 19,960, fail 40; 600 of 20,000 runs drawn" in titles(figure)
    lines = [one for one in figure.traverse(lambda e: e, [hv.Segments]) if "axis1" in one]
    assert [len(one) for one in lines] == [2 * 560, 2 * 40]  # across three axes


def test_values_that_hardly_repeat_are_drawn_in_bins_with_short_labels() -> None:
    rng = np.random.default_rng(0)
    coords = {name: ("run", rng.random(1000), {"units": "m"}) for name in "abcd"}
    ds = xr.Dataset({"y": ("run", rng.random(1000))}, coords=coords)
    wanted = ["y > 0.5"]
    figure = sk.failure_map(ds, "a", "b", by=["c", "d"], requirements=wanted, backend="bokeh")
    assert len(figure) == 16
    assert re.search(r"over the runs of each cell.*c 0\.00\d+ to 0\.2\d+ m, d", titles(figure))
    by_output = sk.failure_map(ds, "a", "b", of="y", by="c", requirements=wanted, backend="bokeh")
    assert len(by_output) == 4
    strip = next(iter(sk.strips(ds, requirements=wanted, backend="bokeh")))
    ticks = strip.opts.get("plot").kwargs["xticks"]
    assert len(ticks) >= 3
    assert all(len(text) < 8 for _, text in ticks)


def test_the_front_of_designs_is_marked() -> None:
    best = list(sk.trade_off(sweep(), backend="bokeh").traverse(lambda e: e, [hv.Scatter]))[-1]
    assert best.label == "Pareto front"
    assert len(best) >= 1


def test_a_picture_has_no_ground_of_its_own() -> None:
    figure = sk.failure_map(sweep(), "gain", "mass", backend="matplotlib")
    png, _ = hv.renderer("matplotlib")(figure, fmt="png")
    picture = np.asarray(Image.open(io.BytesIO(png)).convert("RGBA"))
    assert picture[0, 0, 3] == 0
    assert picture[..., 3].max() == 255
