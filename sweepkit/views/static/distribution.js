// How an output is distributed: its distribution function with band and limit, quantiles by a parameter, traces.
import {
  count,
  edges,
  figure,
  fitting,
  h,
  percent,
  plural,
  s,
  sentence,
  short,
  shortened,
  swap,
  tickTexts,
  ticks,
  united,
} from "./draw.js";

export function distributionView(app) {
  const select = h("select", {
    class: "btn",
    "aria-label": "output",
    data: { axis: "output" },
    onchange: () => app.set({ output: select.value }),
  });
  const note = h("span", { class: "xs muted note" }),
    body = h("div", { class: "three" });
  const el = h(
    "section",
    { class: "card wide dist-card", data: { view: "distribution" } },
    h("div", { class: "head" }, h("h2", {}, "Distributions"), note, select),
    body,
  );
  let choices = "",
    beside = 1; // plots in a row

  function draw() {
    const data = app.part("distribution");
    if (!data) {
      swap(body, h("p", { class: "empty" }, "Counting …"));
      return;
    }
    const now = JSON.stringify([data.choices, data.output]);
    if (now !== choices) {
      choices = now;
      swap(
        select,
        (data.choices || []).map((c) => h("option", { value: c, selected: c === data.output }, c)),
      );
    }
    select.hidden = !data.choices?.length;
    if (data.why) {
      swap(body, h("p", { class: "empty" }, sentence(data.why)));
      note.textContent = "";
      return;
    }
    const [n, unknown, nan] = data.counts;
    note.textContent = `${plural(n, "run")}${nan ? `, ${count(nan)} NaN` : ""}${unknown ? `, ${count(unknown)} unknown` : ""}; ${data.basis.split(":")[0]}`;
    beside = 1 + Boolean(data.strips) + Boolean(data.fan);
    const panels = [ecdf(data)];
    if (data.strips) panels.push(quantiles(data));
    if (data.fan) panels.push(fan(data));
    body.style.setProperty("--n", panels.length);
    swap(body, panels);
  }

  const size = () =>
    Math.max(220, Math.floor(app.width(body, 840) / (app.width(body, 840) > 640 ? beside : 1)) - 20);

  function frame(width, H, low, high, unit) {
    const svg = s("svg", { width, height: H + 44, role: "img" }),
      g = s("g", { transform: "translate(48,10)" }),
      W = width - 58;
    svg.append(g);
    const fy = (v) => H - ((v - low) / (high - low)) * H;
    const marks = ticks(low, high, 4),
      texts = unit === "%" ? marks.map((t) => percent(t)) : tickTexts(marks);
    marks.forEach((t, i) =>
      g.append(
        s("path", { d: `M0 ${fy(t)}H${W}`, stroke: "var(--sk-line-2)" }),
        s("text", { x: -6, y: fy(t) + 4, "text-anchor": "end" }, texts[i]),
      ),
    );
    return { svg, g, W, fy };
  }

  function ecdf(data) {
    const { at, share, low, high } = data.ecdf,
      width = size(),
      H = 150,
      lever = data.lever === null ? null : app.meta.levers[data.lever];
    const limit = lever?.movable ? lever.stops[app.state.stops[data.lever]] : null;
    let x0 = Math.min(...at),
      x1 = Math.max(...at);
    if (limit !== null) {
      x0 = Math.min(x0, limit);
      x1 = Math.max(x1, limit);
    }
    if (!(x1 > x0)) {
      x0 -= 0.5;
      x1 += 0.5;
    }
    const { svg, g, W, fy } = frame(width, H, 0, 1, "%"),
      fx = (v) => ((v - x0) / (x1 - x0)) * W;
    if (limit !== null)
      g.append(
        lever.rising
          ? s("rect", {
              x: 0,
              y: 0,
              width: Math.max(0, fx(limit)),
              height: H,
              fill: "var(--sk-fail-soft)",
            })
          : s("rect", {
              x: fx(limit),
              y: 0,
              width: Math.max(0, W - fx(limit)),
              height: H,
              fill: "var(--sk-fail-soft)",
            }),
      );
    let path = "";
    const up = [],
      down = [];
    at.forEach((v, i) => {
      const X = fx(v).toFixed(1),
        before = i ? fx(at[i]).toFixed(1) : X;
      path += i
        ? `H${before}V${fy(share[i]).toFixed(1)}`
        : `M0 ${fy(0)}H${X}V${fy(share[i]).toFixed(1)}`;
      // The band steps where the function does: between two values it is that of the first.
      for (const k of i ? [i - 1, i] : [i]) {
        up.push(`${X} ${fy(Math.min(1, high[k])).toFixed(1)}`);
        down.push(`${X} ${fy(Math.max(0, low[k])).toFixed(1)}`);
      }
    });
    g.append(
      s("path", {
        d: `M${up.join("L")}L${down.reverse().join("L")}Z`,
        fill: "var(--sk-pending)",
        opacity: 0.4,
      }),
      s("path", { d: `${path}H${W}`, fill: "none", stroke: "var(--sk-ink)", "stroke-width": 1.6 }),
    );
    if (limit !== null) {
      g.append(
        s("path", {
          d: `M${fx(limit)} 0V${H}`,
          stroke: "var(--sk-ink)",
          "stroke-dasharray": "5 3",
        }),
      );
      const left = fx(limit) > W / 2;
      g.append(
        s(
          "text",
          {
            x: fx(limit) + (left ? -5 : 5),
            y: 10,
            "text-anchor": left ? "end" : "start",
            class: "strong",
          },
          `limit ${figure(limit)}`,
        ),
      );
    }
    const marks = ticks(x0, x1, 4),
      texts = tickTexts(marks),
      fits = fitting(marks.map(fx), texts);
    marks.forEach((v, i) => {
      g.append(s("path", { d: `M${fx(v)} ${H}v4`, stroke: "var(--sk-edge)" }));
      if (fits[i]) g.append(s("text", { x: fx(v), y: H + 16, "text-anchor": "middle" }, texts[i]));
    });
    g.append(
      s(
        "text",
        { x: W / 2, y: H + 31, "text-anchor": "middle", class: "axis" },
        short(`${data.output}${data.units ? `, ${data.units}` : ""}`, Math.floor(W / 6)),
      ),
    );
    svg.setAttribute("aria-label", `distribution function of ${data.output}`);
    svg.addEventListener("mousemove", (e) => {
      const u = e.clientX - svg.getBoundingClientRect().x - 48;
      let i = 0;
      at.forEach((v, j) => {
        if (fx(v) <= u) i = j;
      });
      app.tip(
        e.clientX,
        e.clientY,
        h("b", {}, `${percent(share[i], 1)} % at or below ${united(figure(at[i]), data.units)}`),
        h(
          "div",
          {},
          `band ${percent(Math.max(0, low[i]), 1)} to ${percent(Math.min(1, high[i]), 1)} %`,
        ),
      );
    });
    svg.addEventListener("mouseleave", () => app.untip());
    return h("figure", {}, h("figcaption", {}, "Share of runs at or below, % (with band)"), svg);
  }

  function quantiles(data) {
    const p = app.param(data.strips.name),
      width = size(),
      H = 150,
      rows = data.strips.rows,
      all = rows.flatMap((r) => r.q).filter((v) => v !== null);
    if (!all.length)
      return h(
        "figure",
        {},
        h("figcaption", {}, `By ${p.name}`),
        h("p", { class: "empty" }, "No finished run has a number."),
      );
    const lever = data.lever === null ? null : app.meta.levers[data.lever],
      limit = lever?.movable ? lever.stops[app.state.stops[data.lever]] : null;
    let low = Math.min(...all, limit ?? Infinity),
      high = Math.max(...all, limit ?? -Infinity);
    if (!(high > low)) {
      low -= 0.5;
      high += 0.5;
    }
    const { svg, g, W, fy } = frame(width, H, low, high, ""),
      ex = edges(p, W),
      box = (i) => Math.max(2, Math.min(16, (ex.e[i + 1] - ex.e[i]) * W * 0.5));
    rows.forEach((r, i) => {
      if (r.q[2] === null) return;
      const x = ex.c[i] * W,
        w = box(i);
      g.append(
        s("path", { d: `M${x} ${fy(r.q[0])}V${fy(r.q[4])}`, stroke: "var(--sk-edge)" }),
        s("rect", {
          x: x - w / 2,
          y: fy(r.q[3]),
          width: w,
          height: Math.max(1, fy(r.q[1]) - fy(r.q[3])),
          fill: "var(--sk-sunk)",
          stroke: "var(--sk-edge)",
        }),
        s("path", {
          d: `M${x - w / 2} ${fy(r.q[2])}h${w}`,
          stroke: "var(--sk-ink)",
          "stroke-width": 2,
        }),
      );
    });
    if (limit !== null)
      g.append(
        s("path", {
          d: `M0 ${fy(limit)}H${W}`,
          stroke: "var(--sk-ink)",
          "stroke-dasharray": "5 3",
        }),
      );
    const at = ex.c.map((c) => c * W),
      labels = shortened(p.labels, 10),
      shown = fitting(at, labels);
    labels.forEach((t, i) => {
      if (shown[i]) g.append(s("text", { x: at[i], y: H + 16, "text-anchor": "middle" }, t));
    });
    g.append(
      s(
        "text",
        { x: W / 2, y: H + 31, "text-anchor": "middle", class: "axis" },
        `${p.name}${p.units ? `, ${p.units}` : ""}`,
      ),
    );
    svg.setAttribute("aria-label", `quantiles of ${data.output} by ${p.name}`);
    svg.addEventListener("mousemove", (e) => {
      const u = e.clientX - svg.getBoundingClientRect().x - 48;
      let i = 0;
      at.forEach((v, j) => {
        if (Math.abs(v - u) < Math.abs(at[i] - u)) i = j;
      });
      const q = rows[i].q;
      app.tip(
        e.clientX,
        e.clientY,
        h("b", {}, `${p.name} ${united((p.full || p.labels)[i], p.units)}`),
        q[2] === null
          ? "no finished run"
          : h("div", {}, `median ${figure(q[2])}, middle half ${figure(q[1])} to ${figure(q[3])}`),
        h("div", {}, plural(rows[i].n, "run")),
      );
    });
    svg.addEventListener("mouseleave", () => app.untip());
    return h(
      "figure",
      {},
      h("figcaption", {}, `${short(data.output, 26)} by ${p.name}: 5, 25, 50, 75, 95 %`),
      svg,
    );
  }

  function fan(data) {
    const f = data.fan,
      width = size(),
      H = 150,
      all = f.q.flat().filter((v) => v !== null);
    const record = app.part("run"),
      own = record?.traces
        ?.find((t) => t.name === f.name)
        ?.lines.find((l) => l.run === app.state.run);
    let low = Math.min(...all),
      high = Math.max(...all);
    if (own) {
      const ys = own.y.filter((v) => v !== null);
      low = Math.min(low, ...ys);
      high = Math.max(high, ...ys);
    }
    if (!(high > low)) {
      low -= 0.5;
      high += 0.5;
    }
    const { svg, g, W, fy } = frame(width, H, low, high, ""),
      x0 = f.x[0],
      x1 = Math.max(f.x[f.x.length - 1], x0 + 1e-9),
      fx = (v) => ((v - x0) / (x1 - x0)) * W;
    const pts = (row) =>
      f.x
        .map((v, i) => (row[i] === null ? null : `${fx(v).toFixed(1)} ${fy(row[i]).toFixed(1)}`))
        .filter(Boolean);
    for (const [a, b, o] of [
      [0, 4, 0.35],
      [1, 3, 0.6],
    ])
      g.append(
        s("path", {
          d: `M${pts(f.q[b]).join("L")}L${pts(f.q[a]).reverse().join("L")}Z`,
          fill: "var(--sk-pending)",
          opacity: o,
        }),
      );
    g.append(
      s("path", {
        d: `M${pts(f.q[2]).join("L")}`,
        fill: "none",
        stroke: "var(--sk-ink)",
        "stroke-width": 1.6,
      }),
    );
    if (own) {
      const kind = record.outcome;
      g.append(
        s("path", {
          d: `M${own.x
            .map((v, i) =>
              own.y[i] === null || v > x1 ? null : `${fx(v).toFixed(1)} ${fy(own.y[i]).toFixed(1)}`,
            )
            .filter(Boolean)
            .join("L")}`,
          fill: "none",
          stroke: `var(--sk-${kind})`,
          "stroke-width": 2,
        }),
      );
    }
    const marks = ticks(x0, x1, 4),
      texts = tickTexts(marks);
    marks.forEach((v, i) =>
      g.append(s("text", { x: fx(v), y: H + 16, "text-anchor": "middle" }, texts[i])),
    );
    g.append(s("text", { x: W / 2, y: H + 31, "text-anchor": "middle", class: "axis" }, f.along));
    svg.setAttribute("aria-label", `quantiles of the trace ${f.name}`);
    return h(
      "figure",
      {},
      h(
        "figcaption",
        {},
        `Trace ${short(f.name, 18)}${f.units ? `, ${f.units}` : ""}: 5 to 95 % of ${f.drawn < f.of ? `${count(f.drawn)} sampled runs of ${count(f.of)}` : plural(f.of, "run")}${own ? "; coloured: open run" : ""}`,
      ),
      svg,
    );
  }
  return { el, draw, parts: ["distribution"], also: ["run"], lazy: true };
}
