// Held up: one strip per parameter, the most important first.
import {
  bounds,
  edges,
  fitting,
  h,
  percent,
  plural,
  s,
  sentence,
  short,
  shortened,
  swap,
  united,
  unpack,
} from "./draw.js";

export function heldView(app) {
  const strips = h("div", { class: "strips" });
  const key = h(
    "span",
    { class: "xs muted legend-line" },
    s(
      "svg",
      { width: 10, height: 10 },
      s("path", { d: "M5 0V10", stroke: "var(--sk-pass)", "stroke-width": 5, opacity: 0.38 }),
      s("circle", { cx: 5, cy: 5, r: 3, fill: "var(--sk-pass)" }),
    ),
    "pass rate, %",
    s(
      "svg",
      { width: 12, height: 10 },
      s("path", { d: "M0 5H12", stroke: "var(--sk-edge)", "stroke-width": 1.5 }),
    ),
    "all runs",
  );
  const el = h(
    "section",
    { class: "card held-card", data: { view: "held" } },
    h("div", { class: "head" }, h("h2", {}, "Held up"), key),
    strips,
  );
  let order = null;

  function draw(light) {
    const data = app.part("held");
    if (!data) {
      swap(strips, h("p", { class: "empty" }, "Counting …"));
      return;
    }
    if (!app.meta.levers.length) {
      swap(strips, h("p", { class: "empty" }, "No requirement says what holds up."));
      return;
    }
    if (!data.strips) {
      swap(strips, h("p", { class: "empty" }, sentence(data.why)));
      return;
    }
    if (!data.strips.length) {
      swap(
        strips,
        h(
          "p",
          { class: "empty" },
          "No parameter has more than one value, so none can hold up better than another.",
        ),
      );
      return;
    }
    const names = data.strips.map((t) => t.name);
    if (
      !order ||
      !(light || app.dragging) ||
      order.length !== names.length ||
      order.some((n) => !names.includes(n))
    )
      order = names;
    const by = Object.fromEntries(data.strips.map((t) => [t.name, t]));
    const k = app.fresh("held") ? null : moved();
    const width = Math.max(120, app.width(strips, 300) - 120);
    const hasRates = data.strips.some((t) => t.n.some((n) => n));
    swap(
      strips,
      hasRates
        ? null
        : h(
            "p",
            { class: "empty" },
            app.state.filters.length
              ? "None of the selected runs has finished with outputs."
              : "No run has finished with outputs.",
          ),
      order.map((name) => strip(by[name], k, width)),
      data.why && hasRates ? h("p", { class: "note-line" }, sentence(data.why)) : null,
    );
  }

  // Which limit alone has moved since the strips were counted.
  function moved() {
    if (app.relative()) return null;
    try {
      const [stops, filters] = JSON.parse(app.parts.held.key);
      if (JSON.stringify(filters) !== JSON.stringify(app.state.filters)) return null;
      const limits = stops.map((v, i) => (v !== app.state.stops[i] ? i : -1)).filter((i) => i >= 0);
      return limits.length === 1 ? limits[0] : null;
    } catch {
      return null;
    }
  }

  function strip(t, k, width) {
    const p = app.param(t.name),
      W = width - 34,
      H = 42;
    const ex = edges(p, W);
    const at = ex.c.map((c) => 6 + c * (W - 12));
    let pass = t.rate.map((r) => (r === null ? null : 1 - r));
    const live = k !== null && t.passing[k];
    if (live) {
      const cube = unpack(t.passing[k]),
        stops = app.meta.levers[k].stops.length,
        stop = app.state.stops[k];
      pass = t.n.map((n, i) => (n ? cube[i * stops + stop] / n : null));
    }
    const Y = (share) => 6 + (1 - share) * (H - 12);
    const svg = s("svg", {
      width,
      height: H + 18,
      role: "img",
      "aria-label": `${t.name}: ${pass
        .map((v, i) => `${(p.full || p.labels)[i]} ${percent(v)} %`)
        .slice(0, 30)
        .join(", ")} pass`,
    });
    for (const r of [0, 1])
      svg.append(
        s("path", { d: `M0 ${Y(r)}H${W}`, stroke: "var(--sk-line-2)" }),
        s("text", { x: W + 32, y: Y(r) + 4, "text-anchor": "end" }, r * 100),
      );
    const few = p.n <= 40;
    if (app.state.filters.length && few)
      t.all.forEach((r, i) => {
        if (r !== null)
          svg.append(
            s("path", {
              d: `M${at[i] - 5} ${Y(1 - r)}h10`,
              stroke: "var(--sk-edge)",
              "stroke-width": 1.5,
            }),
          );
      });
    if (!live && few)
      t.low.forEach((low, i) => {
        if (t.n[i] && low !== null)
          svg.append(
            s("path", {
              d: `M${at[i]} ${Y(1 - low)}V${Y(1 - t.high[i])}`,
              stroke: "var(--sk-pass)",
              "stroke-width": 5,
              opacity: 0.38,
            }),
          );
      });
    if (p.numbers) {
      let path = "";
      pass.forEach((v, i) => {
        if (v !== null) path += `${path ? "L" : "M"}${at[i]} ${Y(v)}`;
      });
      if (path)
        svg.append(
          s("path", {
            d: path,
            fill: "none",
            stroke: "var(--sk-pass-text)",
            "stroke-width": few ? 1 : 1.4,
          }),
        );
    }
    if (few || !p.numbers)
      pass.forEach((v, i) => {
        if (v !== null)
          svg.append(
            s("circle", {
              cx: at[i],
              cy: Y(v),
              r: p.n > 40 ? 1.3 : p.n > 16 ? 2 : 3,
              fill: "var(--sk-pass)",
            }),
          );
      });
    const labels = shortened(p.labels, 9),
      places = at.map((x, i) => Math.max(x, 3.1 * labels[i].length)), // not into the names
      shown = fitting(places, labels, 6, 6.2);
    labels.forEach((v, i) => {
      if (shown[i])
        svg.append(s("text", { x: places[i], y: H + 12, "text-anchor": "middle" }, v));
    });
    svg.addEventListener("mousemove", (e) => {
      const u = e.clientX - svg.getBoundingClientRect().x;
      let i = 0;
      at.forEach((a, j) => {
        if (Math.abs(a - u) < Math.abs(at[i] - u)) i = j;
      });
      const rows = [h("b", {}, `${t.name} ${united((p.full || p.labels)[i], p.units)}`)];
      rows.push(
        h(
          "div",
          {},
          t.n[i]
            ? `${percent(pass[i], 1)} % pass${live || t.low[i] === null ? "" : `, ${bounds({ rate: pass[i], low: 1 - t.high[i], high: 1 - t.low[i] })}`}`
            : "nothing finished",
        ),
      );
      rows.push(
        h(
          "div",
          {},
          plural(t.n[i], "finished run"),
          t.error[i] ? `, ${plural(t.error[i], "error")}` : "",
        ),
      );
      app.tip(e.clientX, e.clientY, ...rows);
    });
    svg.addEventListener("mouseleave", () => app.untip());
    return h(
      "div",
      { class: "strip", data: { name: t.name } },
      h(
        "div",
        { class: "nm" },
        h("b", { title: p.about || t.name }, short(t.name, 15)),
        h(
          "div",
          { class: "xs muted units" },
          p.units || (p.role === "replicate" ? "replicate" : ""),
        ),
        shares(t),
      ),
      svg,
    );
  }

  // S1 inside ST; where these are unknown, the distance between passed and failed.
  function shares(t) {
    const bar = (inner, outer) =>
      s(
        "svg",
        { width: 84, height: 6, "aria-hidden": "true" },
        s("rect", { width: 84, height: 6, fill: "var(--sk-sunk)" }),
        s("rect", {
          width: 84 * Math.min(1, Math.max(0, outer || 0)),
          height: 6,
          fill: "var(--sk-pending)",
        }),
        s("rect", {
          width: 84 * Math.min(1, Math.max(0, inner || 0)),
          height: 6,
          fill: "var(--sk-ink)",
        }),
      );
    if (t.ST !== null || t.S1 !== null)
      return h(
        "div",
        {
          title:
            "S1: share of the variance of failing that it explains alone; ST: share that would remain if all others were known",
        },
        bar(t.S1, t.ST ?? t.S1),
        h(
          "div",
          { class: "xs muted" },
          `S1 ${t.S1 === null ? "–" : Math.max(0, t.S1).toFixed(2)}${t.ST === null ? "" : ` in ST ${t.ST.toFixed(2)}`}`,
        ),
      );
    if (t.KS !== null)
      return h(
        "div",
        { title: "Largest distance between the distributions of passed and failed runs" },
        bar(t.KS, t.KS),
        h("div", { class: "xs muted" }, `KS ${t.KS.toFixed(2)}`),
      );
    return null;
  }
  return { el, draw, moves: true, parts: ["held"] };
}
