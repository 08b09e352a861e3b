// Parallel coordinates: runs as lines; a brush on an axis filters; the rarest outcome is drawn last.
import {
  canvas,
  colours,
  count,
  edges,
  figure,
  glyph,
  h,
  plural,
  s,
  sentence,
  short,
  shortened,
  swap,
  unpack,
} from "./draw.js";
import { axisBrushes } from "./brush.js";

const H = 216,
  TOP = 34,
  FOOT = 22;

export function parallelView(app) {
  const note = h("span", { class: "xs muted note" }),
    toggles = h("span", { class: "toggles" }),
    box = h("div", { class: "lines" });
  const el = h(
    "section",
    { class: "card wide lines-card", data: { view: "parallel" } },
    h("div", { class: "head" }, h("h2", {}, "Parallel coordinates"), note, toggles),
    box,
    h(
      "div",
      { class: "lines-foot xs muted" },
      h("span", {}, "drag on an axis to brush, click it to clear; click a line to open its run"),
      h("span", {}, "thick tick: limit, dark line: open run, dashed: error"),
    ),
  );
  const brushes = axisBrushes(app, { top: TOP, height: H, ended: () => draw() });
  let painted = 0;
  let later = 0;
  const shown = { pass: true, fail: true, error: true };

  function draw(light) {
    if (brushes.held()) return; // a brush is being drawn: it ends with a change, and then all is drawn
    if (light && performance.now() - painted < 150) {
      clearTimeout(later); // thousands of lines take their time: not at every step of a drag
      later = setTimeout(() => draw(), 150);
      return;
    }
    painted = performance.now();
    const data = app.part("lines");
    if (!data) {
      swap(box, h("p", { class: "empty" }, "Sampling …"));
      return;
    }
    if (!data.runs) {
      swap(box, h("p", { class: "empty" }, sentence(data.why)));
      return;
    }
    const focus = box.getRootNode().activeElement,
      at = box.contains(focus) ? focus.dataset.axis : null;
    const axes = layout(data);
    const outcome = outcomes(data),
      selected = unpack(data.selected),
      n = outcome.length;
    const tally = { pass: 0, fail: 0, error: 0 };
    let inside = 0;
    for (let i = 0; i < n; i++)
      if (selected[i]) {
        inside++;
        if (outcome[i] in tally) tally[outcome[i]]++;
      }
    if (!light) {
      const word = app.part("overview").progress.pending ? "ended run" : "run";
      note.textContent =
        n < data.total
          ? `${count(n)} of ${plural(data.total, word)} drawn, sampled by outcome; ${count(inside)} selected`
          : `${plural(inside, word)} of ${count(data.total)} drawn, none sampled away`;
      swap(
        toggles,
        ["pass", "fail", "error"].map((k) =>
          h(
            "button",
            {
              class: "tog",
              type: "button",
              "aria-pressed": String(shown[k]),
              "aria-label": `${k}: ${tally[k]} lines`,
              data: { k },
              onclick: () => {
                shown[k] = !shown[k];
                draw();
              },
            },
            glyph(k),
            `${k} `,
            h("b", {}, count(tally[k])),
          ),
        ),
      );
    }
    const width = Math.max(300, app.width(box, 800)),
      made = canvas(width, H + TOP + FOOT);
    paint(made.context, axes, outcome, selected, tally);
    const svg = overlay(axes, width);
    box.style.height = `${H + TOP + FOOT}px`;
    swap(box, made.node, svg);
    made.node.setAttribute("aria-hidden", "true");
    svg.addEventListener("click", (e) => near(e, svg, axes, outcome, selected, data));
    if (at) box.querySelector(`[data-axis="${CSS.escape(at)}"]`)?.focus({ preventScroll: true });
  }

  // How values between a parameter's ends lie between 0 and 1, straight or in the logarithm.
  function span_(p) {
    const f = p.log ? Math.log : (v) => v,
      low = f(p.ends[0][0]),
      width = f(p.ends[1][p.n - 1]) - low;
    if (!(width > 0) || !Number.isFinite(width)) return null;
    return {
      to: (v) => (f(v) - low) / width,
      from: (u) => (p.log ? Math.exp : (v) => v)(low + u * width),
    };
  }

  function outcomes(data) {
    const base = unpack(data.base),
      levers = data.levers.map(unpack),
      found = new Array(base.length);
    for (let i = 0; i < base.length; i++) {
      if (base[i] === 2) found[i] = "pending";
      else if (base[i] >= 3) found[i] = "error";
      else
        found[i] = levers.every((codes, k) =>
          app.meta.levers[k].rising
            ? codes[i] > app.state.stops[k]
            : codes[i] <= app.state.stops[k],
        )
          ? "pass"
          : "fail";
    }
    return found;
  }

  function layout(data) {
    const width = Math.max(300, app.width(box, 800)),
      axes = [];
    for (const p of app.meta.params) {
      if (p.n < 2 || !data.codes[p.name]) continue;
      const codes = unpack(data.codes[p.name]),
        c = edges(p, H).c,
        y = c.map((u) => TOP + (1 - (0.04 + 0.92 * u)) * H);
      const axis = {
        p,
        name: p.name,
        units: p.units,
        y: (i) => y[codes[i]],
        at: y,
        labels: p.labels,
        marks: shortened(p.labels, 8),
      };
      axes.push(axis);
      // Values that hardly repeat lie where they are, and a brush is of values and not of bins.
      const scale = data.exact?.[p.name] && span_(p);
      if (!scale) continue;
      const values = unpack(data.exact[p.name]),
        place = (v) => TOP + (1 - (0.04 + 0.92 * scale.to(v))) * H;
      Object.assign(axis, {
        y: (i) => place(values[i]),
        at: p.numbers.map(place),
        f: place,
        back: (v) => scale.from((1 - (v - TOP) / H - 0.04) / 0.92),
        low: p.ends[0][0],
        high: p.ends[1][p.n - 1],
      });
    }
    for (const a of data.axes) {
      const values = unpack(a.values),
        lever = app.meta.levers.findIndex((r) => r.what === a.what && r.movable);
      const f = (v) => TOP + (1 - (0.04 + 0.92 * ((v - a.low) / (a.high - a.low)))) * H;
      axes.push({
        a,
        name: a.name,
        units: a.units,
        lever,
        y: (i) => (Number.isNaN(values[i]) ? TOP + H + 8 : f(values[i])),
        f,
      });
    }
    const kinds = ["error", "fail", "pass"];
    axes.push({
      status: true,
      name: "status",
      units: "",
      of: (o) => TOP + H * (1 - (0.15 + 0.35 * Math.max(0, kinds.indexOf(o)))),
    });
    const first = Math.max(0, ...(axes[0].marks || []).map((t) => t.length)),
      room = Math.max(34, 10 + 6.2 * first), // the labels of the first axis stand left of it
      step = axes.length > 1 ? (width - room - 74) / (axes.length - 1) : 0;
    axes.forEach((axis, k) => {
      axis.x = room + k * step;
      axis.step = step;
    });
    return axes;
  }

  function paint(g, axes, outcome, selected, tally) {
    const tint = colours(app.root),
      run = app.state.run,
      n = outcome.length;
    const spread = (i, k) => (((i * 2654435761) >>> (k % 7)) % 1000) / 1000 - 0.5;
    const trace = (i) => {
      g.beginPath();
      axes.forEach((axis, k) => {
        let y = axis.status ? axis.of(outcome[i]) + 26 * spread(i, 3) : axis.y(i);
        if (axis.p && !axis.f && axis.p.n <= 24) y += Math.min(9, (0.5 * H) / axis.p.n) * spread(i, k);
        if (!k) g.moveTo(axis.x, y);
        else {
          const last = axes[k - 1].x,
            mid = (last + axis.x) / 2;
          g.bezierCurveTo(mid, before, mid, y, axis.x, y);
        }
        before = y;
      });
      g.stroke();
    };
    let before = 0;
    g.lineWidth = 1;
    const outside = [],
      groups = { pass: [], fail: [], error: [] };
    for (let i = 0; i < n; i++) {
      if (outcome[i] === "pending" || shown[outcome[i]] === false) continue;
      if (!selected[i]) outside.push(i);
      else groups[outcome[i]].push(i);
    }
    g.strokeStyle = tint.pending;
    g.globalAlpha = 0.12;
    for (const i of outside.slice(0, 1500)) trace(i);
    const order = Object.keys(groups).sort((a, b) => tally[b] - tally[a]);
    for (const kind of order) {
      g.strokeStyle = kind === "error" ? tint["error-text"] : tint[kind];
      g.globalAlpha = Math.max(0.07, Math.min(0.85, 60 / Math.max(1, groups[kind].length)));
      g.setLineDash(kind === "error" ? [5, 3] : []);
      for (const i of groups[kind]) trace(i);
    }
    g.setLineDash([]);
    const data = app.part("lines"),
      runs = unpack(data.runs),
      open = run === null ? -1 : runs.indexOf(run);
    if (open >= 0) {
      g.globalAlpha = 1;
      g.strokeStyle = tint.halo;
      g.lineWidth = 5;
      trace(open);
      g.strokeStyle = tint.ink;
      g.lineWidth = 2;
      trace(open);
    }
    g.globalAlpha = 1;
  }

  function overlay(axes, width) {
    const svg = s("svg", { width, height: H + TOP + FOOT });
    axes.forEach((axis) => {
      const g = s("g", { class: "ax", transform: `translate(${axis.x},0)` }),
        most = Math.max(5, Math.floor(axis.step / 6.6));
      g.append(
        s("text", { y: 11, "text-anchor": "middle", class: "strong" }, short(axis.name, most)),
        s("text", { y: 24, "text-anchor": "middle" }, axis.units || ""),
      );
      g.append(s("path", { d: `M0 ${TOP}V${TOP + H}`, stroke: "var(--sk-edge)" }));
      if (axis.status) {
        for (const kind of ["pass", "fail", "error"]) {
          const mark = glyph(kind, 12);
          mark.setAttribute("x", 10);
          mark.setAttribute("y", axis.of(kind) - 6);
          g.append(mark, s("text", { x: 26, y: axis.of(kind) + 4 }, kind));
        }
        svg.append(g);
        return;
      }
      if (axis.p) {
        let last = Infinity;
        axis.at.forEach((y, i) => {
          if (last - y < (axis.at.length > 8 ? 22 : 12)) return;
          last = y;
          g.append(label(-6, y + 4, axis.marks[i]));
        });
      } else {
        for (const v of [axis.a.low, (axis.a.low + axis.a.high) / 2, axis.a.high])
          g.append(label(-6, axis.f(v) + 4, figure(v, 3)));
        g.append(label(-6, TOP + H + 12, "none"));
        if (axis.lever >= 0) {
          const limit = app.meta.levers[axis.lever].stops[app.state.stops[axis.lever]],
            y = axis.f(limit);
          if (y >= TOP - 2 && y <= TOP + H + 2)
            g.append(s("path", { d: `M-9 ${y}H9`, stroke: "var(--sk-ink)", "stroke-width": 3 }));
        }
      }
      g.append(brushes.on(axis));
      svg.append(g);
    });
    return svg;
  }

  const label = (x, y, text) => s("text", { x, y, "text-anchor": "end", class: "halo" }, text);

  function near(e, svg, axes, outcome, selected, data) {
    const b = svg.getBoundingClientRect(),
      X = e.clientX - b.x,
      Y = e.clientY - b.y;
    const k = axes.findIndex((axis) => axis.x > X);
    if (k < 1) return;
    const a = axes[k - 1],
      z = axes[k],
      u = (X - a.x) / (z.x - a.x),
      ease = 3 * u * u - 2 * u * u * u;
    let best = -1,
      away = 10;
    for (let i = 0; i < outcome.length; i++) {
      if (!selected[i] || outcome[i] === "pending" || !shown[outcome[i]]) continue;
      const y0 = a.y(i),
        y1 = z.status ? z.of(outcome[i]) : z.y(i),
        d = Math.abs(y0 + (y1 - y0) * ease - Y);
      if (d < away) {
        away = d;
        best = i;
      }
    }
    if (best >= 0) app.open(unpack(data.runs)[best]);
  }

  return { el, draw, moves: true, parts: ["lines"], also: ["run"], lazy: true };
}
