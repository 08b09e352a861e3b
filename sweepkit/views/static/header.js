// What this is, how far it is, how many fail; and what is selected.
import { filterChips } from "./chips.js";
import { bounds, count, glyph, h, percent, plural, status, swap } from "./draw.js";

export function headerView(app) {
  const el = h("header", { class: "top" });
  const name = h("div"),
    runs = h("div", { class: "stat" }),
    rate = h("div", { class: "stat" }),
    kinds = h("div", { class: "stat" });
  el.append(h("div", { class: "wrap" }, name, runs, rate, kinds));

  function badge(data) {
    const { progress, all } = data;
    if (progress.pending)
      return h(
        "span",
        { class: "badge", title: app.meta.bases[all.basis] || "" },
        glyph("pending"),
        `in progress ${Math.floor(100 * progress.share)} %`,
      );
    const text =
      {
        census: "exact on this grid",
        replicates: "sampled replicates",
        clusters: "sampled points",
        bounds: "bounds only",
        "nothing has run": all.error ? "nothing but errors" : "nothing has run",
      }[all.basis] || all.basis;
    return h("span", { class: "badge", title: app.meta.bases[all.basis] || "" }, text);
  }

  function draw() {
    const data = app.part("overview"),
      { progress } = data,
      meta = app.meta;
    const selected = Boolean(app.state.filters.length);
    const all = selected ? data.all : app.tally();
    const done = progress.total - progress.pending,
      known = all.pass + all.fail;
    const sizes = meta.dims.map(([d, n]) => `${d} ${n}`).join(" × ");
    swap(
      name,
      h("div", { class: "h1" }, meta.name, badge(data)),
      h(
        "div",
        { class: "s muted", title: sizes },
        meta.path ? h("span", { class: "mono" }, meta.path.split("/").pop()) : null,
        meta.path ? "  " : null,
        `${plural(meta.n, "run")}, ${plural(meta.dims.length, "dim")}, ${plural(meta.levers.length, "requirement")}`,
      ),
      meta.notes.map((note) => h("div", { class: "s note-line" }, note)),
    );
    const share = (n) => `${(100 * n) / Math.max(1, progress.total)}%`;
    swap(
      runs,
      h("div", { class: "lab" }, "Runs"),
      h(
        "div",
        { class: "big" },
        count(done),
        h("small", {}, `of ${count(progress.total)} done, ${count(progress.pending)} pending`),
      ),
      h(
        "div",
        { class: "bar", "aria-hidden": "true" },
        ["pass", "fail", "error", "pending"].map((k) =>
          all[k] ? h("i", { style: { width: share(all[k]), background: `var(--sk-${k})` } }) : null,
        ),
      ),
    );
    const census = all.basis === "census";
    const delta =
      known && data.declared !== null && all.rate !== null ? all.rate - data.declared : null;
    const moved = app.state.stops.some((stop, k) => stop !== meta.levers[k].declared);
    swap(
      rate,
      h(
        "div",
        { class: "lab" },
        progress.pending ? "Failure rate of finished runs" : "Failure rate, whole set",
        census && !all.error ? "" : ", 95 % interval",
      ),
      h(
        "div",
        { class: "big" },
        h(
          "span",
          { class: "rate" },
          known && meta.levers.length ? `${percent(all.rate, 1)} %` : "–",
        ),
        h(
          "small",
          {},
          all.low === null || all.low === undefined || !meta.levers.length
            ? ""
            : census && all.high - all.low < 1e-9
              ? "exact"
              : bounds(all, 1),
        ),
      ),
      h(
        "div",
        { class: "sub" },
        !meta.levers.length
          ? "no requirements"
          : !moved
            ? "at the declared limits"
            : delta === null
              ? ""
              : Math.abs(delta) < 5e-4
                ? "as at the declared limits"
                : `${delta > 0 ? "+" : "−"}${percent(Math.abs(delta), 1)} points against declared limits`,
      ),
    );
    swap(
      kinds,
      h("div", { class: "lab" }, "Status"),
      h(
        "div",
        { class: "kinds" },
        ["pass", "fail", "error"].map((k) =>
          status(k, h("b", { data: { figure: k } }, count(all[k])), ` ${k}`),
        ),
      ),
      h(
        "div",
        { class: "sub" },
        all.error + all.pending
          ? `${count(all.error + all.pending)} unknown, in no rate`
          : "every run is known",
        progress.skipped ? `, ${count(progress.skipped)} skipped` : "",
      ),
    );
  }
  return { el, draw, moves: true };
}

export function chipsView(app) {
  const el = h("div", { class: "chips", role: "region", "aria-label": "Selection" });
  const figures = h("span", { class: "figures", "aria-live": "polite" }),
    list = h("div", { class: "list" });
  const button = (text, name, onclick, main) =>
    h(
      "button",
      { class: main ? "btn main" : "btn", data: { name }, onclick, type: "button" },
      text,
    );
  const clear = button("Clear all", "clear", () => app.set({ filters: [] }));
  const copy = button("Copy as code", "code", () => {
    app.expects = "code";
    app.ask("code");
  });
  const next = button(
    "Suggest next runs",
    "suggest",
    () => {
      show(h("p", {}, "Looking along the edge …"));
      app.ask("suggest");
    },
    true,
  );
  const sheet = h("div", { class: "sheet", hidden: true });
  el.append(
    h("div", { class: "wrap" }, figures, list, h("span", { class: "acts" }, clear, copy, next)),
    sheet,
  );

  function show(...content) {
    sheet.hidden = false;
    swap(
      sheet,
      h(
        "div",
        { class: "wrap" },
        h("div", { class: "grow" }, ...content),
        h(
          "button",
          {
            class: "btn",
            type: "button",
            onclick: () => {
              sheet.hidden = true;
            },
          },
          "Close",
        ),
      ),
    );
  }

  let shown = {};
  function answers() {
    const code = app.parts.code?.data,
      suggested = app.parts.suggest?.data;
    if (code && code !== shown.code) {
      shown.code = code;
      show(
        h(
          "p",
          {},
          "The selected runs as a mask, with ",
          h("code", {}, "import numpy as np, sweepkit as sk, xarray as xr"),
          ":",
        ),
        h("pre", { tabindex: 0, data: { name: "code" } }, code.text || code.why),
      );
      navigator.clipboard?.writeText(code.text).catch(() => {});
    }
    if (suggested && suggested !== shown.suggest) {
      shown.suggest = suggested;
      if (suggested.why) return show(h("p", {}, suggested.why));
      const points = h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            suggested.names.map((n) => h("th", {}, n)),
          ),
        ),
        h(
          "tbody",
          {},
          suggested.rows.map((row) =>
            h(
              "tr",
              {},
              row.map((v) => h("td", {}, v)),
            ),
          ),
        ),
      );
      show(
        h("p", {}, h("b", {}, `${plural(suggested.n, "point")} to run next. `), suggested.method),
        points,
        h(
          "p",
          { class: "muted" },
          "In Python: ",
          h("code", {}, "explorer.suggest().grid"),
          " is a grid that a sweep takes.",
        ),
      );
    }
  }

  function draw() {
    const { filters } = app.state,
      tally = app.tally(),
      known = tally.pass + tally.fail,
      total = known + tally.error + tally.pending;
    if (app.trouble) swap(figures, status("error", h("b", {}, app.trouble)));
    else if (!filters.length) swap(figures, h("b", {}, count(total)), total === 1 ? " run" : " runs", ", nothing filtered");
    else if (!total)
      swap(figures, h("b", {}, "0"), ` runs match all ${filters.length} filters; remove one`);
    else
      swap(
        figures,
        h("b", { data: { figure: "selected" } }, count(total)),
        " selected, ",
        known
          ? [h("b", {}, `${percent(tally.rate, 1)} %`), " fail "]
          : [tally.error, tally.pending]
              .map((n, k) => (n ? `${count(n)} ${k ? "pending" : "errored"}` : ""))
              .filter(Boolean)
              .join(", "),
        !known || tally.low === null || tally.low === undefined || tally.high - tally.low < 1e-9
          ? null
          : h("span", { class: "muted" }, bounds(tally)),
      );
    const focus = el.getRootNode().activeElement,
      at = focus?.closest?.(".chip")?.dataset.k;
    swap(list, filterChips(app));
    if (at !== undefined)
      list.children[Math.min(at, filters.length - 1)]
        ?.querySelector("button")
        ?.focus({ preventScroll: true });
    clear.disabled = copy.disabled = !filters.length;
    next.disabled = !app.meta.levers.length;
    answers();
  }
  return { el, draw, moves: true, also: ["code", "suggest"] };
}
