"""The report as a file: one page that asks for nothing, Markdown, and JSON with its schema."""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit.views.bundle import STATIC
from sweepkit.views.columns import columns, thinned
from sweepkit.views.findings import plain_values
from sweepkit.views.markdown import text
from sweepkit.views.paper import MODULES
from sweepkit.views.source import source
from tests.poles import HOSTILE, stored

EVIL = "</script><script>document.title='owned'</script>|`*"


@pytest.fixture(scope="module")
def poles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("poles") / "poles.zarr"
    stored(path)
    return path


def scattered(n: int = 3_000, d: int = 3) -> xr.Dataset:
    rng = np.random.default_rng(0)
    x = rng.random((n, d))
    coords = {f"p{k}": ("sample", x[:, k]) for k in range(d)}
    return xr.Dataset({"y": ("sample", x[:, 0] + x[:, 1])}, coords=coords)


def crossed(y: Any, **attrs: Any) -> xr.Dataset:
    y = np.asarray(y, float)
    names = "abcdefghijkl"[: y.ndim]
    coords = {name: np.arange(n) for name, n in zip(names, y.shape, strict=True)}
    return xr.Dataset({"y": (tuple(names), y)}, coords=coords, attrs=attrs)


def said(ds: Any, folder: Path, **options: Any) -> dict[str, Any]:
    path = sk.report(ds, folder / "report.json", **options)
    found = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"has {name}"))
    assert isinstance(found, dict)
    return found


def carried(page: str) -> Any:
    """The data in a page, as a browser reads them."""
    found = re.search(r'<script type="application/json" id="sk-data">(.*?)</script>', page, re.S)
    assert found
    return json.loads(found[1])


def test_json_says_what_the_analyses_say_and_keeps_to_its_schema(
    poles: Path, tmp_path: Path
) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    told = said(poles, tmp_path)
    schema = json.loads((STATIC / "report.schema.json").read_text())
    jsonschema.validate(told, schema)
    ds = sk.open(poles)
    whole = sk.rate(ds).iloc[0]
    row = told["answers"]["rate"]["rows"][0]
    for key in ("n_run", "n_failed", "n_error", "rate", "low", "high"):
        assert row[key] == pytest.approx(whole[key])
    assert row["boundary"] is None  # NaN there
    assert told["runs"]["failed"] == int((sk.failed(ds) == 1).sum())
    assert told["runs"]["status"] == {"done": 141, "error": 3}
    assert told["requirements"][0]["n_violated"] == int((ds["steps"] < 120).sum())
    assert told["badge"] == "sampled replicates"
    sentence = told["answers"]["rate"]["sentence"]
    assert sentence.startswith("28 of 141 finished runs fail: 19.9 % (13.8 to 28.7 %")
    assert "3 errored; these are unknown" in sentence
    assert told["answers"]["regions"]["rows"][0]["text"] == sk.regions(ds).boxes["text"][0]
    kinds = {one["family"]: one for one in told["answers"]["kinds"]["rows"]}
    assert "Traceback" in kinds["error"]["traceback"]
    assert HOSTILE in kinds["error"]["traceback"]
    assert told["receipt"]["sessions"][0]["done"] == 141
    assert told["receipt"]["held_hours"] >= told["receipt"]["used_hours"] > 0
    assert told["environment"]["packages"]["numpy"] == np.__version__


def test_the_page_asks_for_nothing_and_lets_no_text_become_markup(
    poles: Path, tmp_path: Path
) -> None:
    path = sk.report(poles, tmp_path / "report.html", title=EVIL)
    page = path.read_text(encoding="utf-8")
    assert len(page) < 400_000
    assert page.count("<script") == page.count("</script") == 3  # theme, data, module
    assert "<script>document" not in page
    assert "default-src 'none'" in page.replace("&#x27;", "'")
    outside = set(re.findall(r"https?://[^\s\"'`)]+", page))
    assert outside == {"http://www.w3.org/2000/svg"}  # a namespace, which nothing loads
    assert not re.search(r"<(link|img|iframe|object|embed)\b", page)
    assert not re.search(r"^(import|export) ", page, re.M)
    assert carried(page)["meta"]["n"] == 144


def test_the_modules_of_the_page_share_no_name_and_write_no_markup() -> None:
    texts = [(STATIC / name).read_text(encoding="utf-8") for name in MODULES]
    made = r"^(?:export )?(?:async )?(?:function|const|class|let) (\w+)"
    names = [name for each in texts for name in re.findall(made, each, re.M)]
    assert len(names) == len(set(names))
    assert not any("innerHTML" in each for each in texts)


def test_hostile_names_units_and_errors_are_text_everywhere(tmp_path: Path) -> None:
    def simulate(gain: float, kind: str) -> dict[str, float]:
        print(f"{EVIL}\n" * 20_000)
        if gain == 2:
            raise ValueError(EVIL)
        return {"y": gain * len(kind)}

    grid = sk.grid(gain=sk.design([1.0, 2.0, 3.0], units=EVIL, long_name=EVIL), kind=[EVIL, "å"])
    sweep = sk.Sweep(simulate, grid, requirements=[sk.requirement("y >= 3", name=EVIL)])
    store = tmp_path / "evil.zarr"
    sk.run(sweep, store, n_jobs=1, backend="sequential", progress=False)
    page = sk.report(store, tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("</script") == 3
    assert len(page) < 400_000
    assert carried(page)["meta"]["levers"][0]["name"] == EVIL
    marked = sk.report(store, tmp_path / "report.md").read_text(encoding="utf-8")
    outside_fences = re.sub(r"^(`{3,}).*?^\1$", "", marked, flags=re.S | re.M)
    outside_code = re.sub(r"(`+)[^\n]*?(?<!`)\1(?!`)", "", outside_fences)
    assert "<script" not in outside_code


def test_markdown_has_the_answers_and_tables_of_even_width(poles: Path, tmp_path: Path) -> None:
    marked = sk.report(poles, tmp_path / "report.md").read_text(encoding="utf-8")
    told = said(poles, tmp_path)
    for one in told["answers"].values():
        assert text(one["sentence"]) in marked
    assert "| `steps >= 120` | 27 | 141 | 19.1 % |" in marked
    for block in re.findall(r"(?:^\|.*\n)+", marked, re.M):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1


def test_columns_unpack_to_the_runs_codes(poles: Path) -> None:
    of = source(str(poles))
    found = columns(of)
    assert found.notes == ()
    assert not found.packed["sampled"]
    raw = zlib.decompress(base64.b64decode(found.packed["levers"][0]["z"]), -15)
    assert np.frombuffer(raw, "<u1").tolist() == of.levers[0].codes.tolist()
    length = next(k for k, p in enumerate(of.parameters) if p.name == "length")
    packed = found.packed["params"][length]
    codes = np.frombuffer(zlib.decompress(base64.b64decode(packed["codes"]["z"]), -15), "<u1")
    assert packed["dims"] == [of.table.dims.index("length")]
    assert codes.tolist() == [0, 1, 2, 3]
    assert found.packed["worth"]["kind"] == "strata"


@pytest.mark.parametrize("most", [8, 16, 64])
def test_fewer_places_of_a_limit_count_exactly_at_each(most: int) -> None:
    of = source(scattered(), ["y <= 1.2"])
    (fine,) = of.levers
    coarse = thinned(fine, most)
    assert len(coarse.stops) <= most < len(fine.stops)
    assert coarse.stops[coarse.declared] == 1.2
    for k, stop in enumerate(coarse.stops):
        assert (coarse.holds(k) == fine.holds(fine.stop(float(stop)))).all()


def test_what_takes_too_much_room_is_coarser_and_says_so() -> None:
    of = source(scattered(60_000, 4), ["y <= 1.2"])
    whole = columns(of)
    assert whole.notes == ()
    fewer = columns(of, budget=int(0.95 * whole.size))
    assert fewer.size <= 0.95 * whole.size
    assert fewer.notes[0] == "The map shows means of 0 of 1 outputs."
    few = columns(of, budget=int(0.7 * whole.size))
    assert any(note.startswith("Limits move in few steps (y in ") for note in few.notes)
    sample = columns(of, budget=whole.size // 3)
    assert sample.size <= whole.size // 3
    assert sample.packed["n"] < 60_000
    assert "random sample of" in sample.notes[-1]
    assert sample.packed["worth"]["kind"] == "sample"  # some draws of many are draws


def test_a_hundred_thousand_runs_fit_in_three_megabytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shape = (10, 10, 10, 10, 10)
    ds = crossed(rng.normal(size=shape)).assign(z=(tuple("abcde"), rng.normal(size=shape)))
    ds = ds.assign_coords({name: ds[name].assign_attrs(role="scenario") for name in "cde"})
    path = sk.report(ds, tmp_path / "report.html", requirements=["y <= 2.5", "z >= -2"])
    assert path.stat().st_size < 3_000_000
    assert carried(path.read_text())["columns"]["n"] == 100_000


NOBODY = np.full((3, 4), np.nan)
ODD: dict[str, tuple[Any, Any, str]] = {
    "all pass": (crossed(np.zeros((3, 4))), ["y <= 1"], "0 of 12 finished runs fail: 0.0 %"),
    "all fail": (crossed(np.ones((3, 4))), ["y < 1"], "12 of 12 finished runs fail: 100.0 %"),
    "one run": (crossed([[1.0]]), ["y < 1"], "1 of 1 finished runs fail"),
    "one dim": (crossed(np.arange(40.0)), ["y < 30"], "10 of 40 finished runs fail"),
    "twelve dims": (crossed(np.indices((2,) * 12).sum(0)), ["y < 9"], "299 of 4,096 finished"),
    "no number": (crossed(NOBODY), ["y < 1"], "12 of 12 finished runs fail"),
    "no requirement": (crossed(np.ones((3, 4))), None, "Nothing says which runs fail"),
    "infinities": (crossed([[1, np.inf], [-np.inf, 2]]), ["y < 5"], "1 of 4 finished runs fail"),
    "scattered": (scattered(), ["y <= 1.8"], "finished runs fail"),
    "compound": (crossed(np.eye(4)), ["y > 0 or y <= -1"], "12 of 16 finished runs fail"),
    "categories": (
        xr.Dataset(
            {"y": (("kind", "b"), np.arange(400.0).reshape(200, 2))},
            coords={"kind": [f"kind {k}" for k in range(200)], "b": [False, True]},
        ),
        ["y < 390"],
        "10 of 400 finished runs fail",
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_sets_are_told_in_every_form(name: str, tmp_path: Path) -> None:
    ds, requirements, sentence = ODD[name]
    told = said(ds, tmp_path, requirements=requirements)
    assert sentence in told["answers"]["rate"]["sentence"]
    for one in told["answers"].values():
        assert one["sentence"].endswith(".")
        assert bool(one["rows"]) or one["why"] or one["sentence"]
    assert sk.report(ds, tmp_path / "a.html", requirements=requirements).stat().st_size > 50_000
    assert sk.report(ds, tmp_path / "a.md", requirements=requirements).stat().st_size > 500


def test_a_store_being_written_and_one_without_a_finished_run_say_so(
    poles: Path, tmp_path: Path
) -> None:
    ds = sk.open(poles).load()
    half = ds["status"].copy()
    half[2:] = 0
    told = said(ds.assign(status=half), tmp_path)
    assert told["badge"] == "in progress 50 %"
    assert told["runs"]["pending"] == 72
    assert "72 of 144 runs are pending" in told["notes"][0]
    none = said(ds.assign(status=half * 0), tmp_path)
    assert none["answers"]["rate"]["why"] == "no run is done, so no failure rate is known yet"
    assert none["notes"][0].startswith("No run has ended yet")
    assert none["runs"]["finished"] == 0


def test_refined_runs_are_told_apart_from_the_grid(tmp_path: Path) -> None:
    def bowl(a: float, b: float) -> dict[str, float]:
        return {"y": (a - 0.5) ** 2 + (b - 0.5) ** 2}

    store = tmp_path / "bowl.zarr"
    axis = np.linspace(0, 1, 6)
    sweep = sk.Sweep(bowl, sk.grid(a=axis, b=axis), requirements=["y >= 0.1"])
    here: dict[str, Any] = {"n_jobs": 1, "backend": "sequential", "progress": False}
    sk.run(sweep, store, **here)
    assert "refined" not in said(store, tmp_path)["answers"]
    sk.refine(sweep, store, sk.suggest(sk.open(store), 10), **here)
    told = said(store, tmp_path)["answers"]
    share = sk.refined_rate(sk.open(store, stages=True)).iloc[0]
    assert told["refined"]["rows"][0]["rate"] == pytest.approx(share["rate"])
    assert told["rate"]["rows"][0]["n_run"] == 36
    joined = said(sk.open(store, stages=True), tmp_path)
    assert joined["badge"] == "by volume"


def test_what_cannot_be_written_or_read_is_refused_before_anything_is_written(
    poles: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"'a\.txt' does not end in \.html, \.md or \.json"):
        sk.report(poles, tmp_path / "a.txt")
    with pytest.raises(ValueError, match=r"there is no folder .*nowhere"):
        sk.report(poles, tmp_path / "nowhere" / "a.html")
    with pytest.raises(ValueError, match=r"none\.zarr"):
        sk.report(tmp_path / "none.zarr", tmp_path / "a.html")
    with pytest.raises(ValueError, match="holds no runs"):
        sk.report(crossed(np.zeros(0)), tmp_path / "a.html", requirements=["y < 1"])
    with pytest.raises(ValueError, match="stepz"):
        sk.report(poles, tmp_path / "a.html", requirements=["stepz > 1"])
    with pytest.raises(TypeError, match="title is 3"):
        sk.report(poles, tmp_path / "a.html", title=3)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_dim_with_the_name_of_an_answers_own_is_told(tmp_path: Path) -> None:
    ds = crossed(np.arange(6.0).reshape(2, 3)).rename(a="kind", b="island")
    told = said(ds, tmp_path, requirements=["y < 3"])["answers"]
    assert told["kinds"]["why"].startswith("a dim is called 'kind'")
    assert told["islands"]["why"].startswith("a dim is called 'island'")
    assert sk.report(ds, tmp_path / "a.html", requirements=["y < 3"]).exists()


def test_plain_values_know_no_nan() -> None:
    day = np.datetime64("2026-01-01")
    given = {"a": np.float64("nan"), "b": [np.int64(3), math.inf, np.bool_(True)], 4: day}
    assert plain_values(given) == {"a": None, "b": [3, None, True], "4": "2026-01-01"}


def test_the_command_line_writes_each_form(poles: Path, tmp_path: Path) -> None:
    pytest.importorskip("click")
    from click.testing import CliRunner

    from sweepkit.cli import main

    paths = [str(tmp_path / f"report.{kind}") for kind in ("html", "md", "json")]
    asked = [part for path in paths for part in ("-o", path)]
    done = CliRunner().invoke(main, ["report", str(poles), *asked, "--require", "steps >= 100"])
    assert done.exit_code == 0, done.output
    assert done.output.split() == paths
    told = json.loads(Path(paths[2]).read_text())
    assert [one["text"] for one in told["requirements"]] == ["steps >= 100"]
    refused = CliRunner().invoke(main, ["report", str(poles), "-o", str(tmp_path / "a.pdf")])
    assert refused.exit_code == 1
    assert "does not end in .html, .md or .json" in refused.output
