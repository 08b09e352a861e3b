// Brushes on the axes of parallel coordinates: a stretch of an axis as a filter of the runs.
import { figure, s, united } from "./draw.js";

// The brushes of a view's axes, which go from `top` on over `height` pixels. While one is held nothing
// is to be drawn anew; `ended` is called where one is given up.
export function axisBrushes(app, { top: TOP, height: H, ended }) {
  let holding = false;

  const current = (axis) => app.state.filters.find((f) => f.src === "brush" && f.on === axis.name);

  function span(axis) {
    const filter = current(axis);
    if (!filter) return null;
    const t = filter.tests[0];
    if (t.codes) {
      const half = axis.p.n > 1 ? H / axis.p.n / 3 : 8,
        ys = t.codes.map((c) => axis.at[c]);
      return [Math.min(...ys) - half, Math.max(...ys) + half];
    }
    return [axis.f(t.high), axis.f(t.low)];
  }

  function commit(axis, top, foot) {
    if (axis.p && !axis.f) {
      const codes = axis.at
        .map((y, i) => (y >= top - 1 && y <= foot + 1 ? i : -1))
        .filter((i) => i >= 0);
      if (!codes.length) {
        app.unfilter((f) => f.src === "brush" && f.on === axis.name);
        return;
      }
      const name = (c) => axis.labels[c],
        ends =
          codes.length > 1
            ? `${name(codes[0])} to ${name(codes[codes.length - 1])}`
            : name(codes[0]);
      app.filter({
        src: "brush",
        on: axis.name,
        text: `${axis.name} ${united(ends, axis.units)}`,
        tests: [{ of: axis.name, codes }],
      });
      return;
    }
    const { low, high } = axis.a || axis,
      back = axis.back || ((y) => low + ((1 - (y - TOP) / H - 0.04) / 0.92) * (high - low));
    const a = Math.max(back(foot), low),
      b = Math.min(back(top), high);
    app.filter({
      src: "brush",
      on: axis.name,
      text: `${axis.name} ${united(`${figure(a)} to ${figure(b)}`, axis.units)}`,
      tests: [axis.a ? { output: axis.a.what, low: a, high: b } : { of: axis.name, low: a, high: b }],
    });
  }

  function brush(axis) {
    const found = span(axis),
      g = s("g", {});
    const drawn = s("rect", {
      x: -7,
      width: 14,
      y: found ? found[0] : 0,
      height: found ? Math.max(4, found[1] - found[0]) : 0,
      fill: "var(--sk-ink)",
      "fill-opacity": 0.12,
      stroke: "var(--sk-ink)",
      "stroke-width": found ? 1.5 : 0,
    });
    const node = s("rect", {
      class: "axis-hit",
      x: -16,
      y: TOP - 4,
      width: 32,
      height: H + 8,
      fill: "transparent",
      tabindex: 0,
      role: "slider",
      "data-axis": axis.name,
      "data-lm-suppress-shortcuts": "true",
      "aria-label": `brush ${axis.name}`,
      "aria-valuetext": current(axis)?.text || "all",
      "aria-valuenow": 0,
    });
    let from = null;
    const place = (e) =>
      Math.max(TOP, Math.min(TOP + H, e.clientY - node.ownerSVGElement.getBoundingClientRect().y));
    node.addEventListener("pointerdown", (e) => {
      from = place(e);
      holding = true;
      node.setPointerCapture(e.pointerId);
      e.preventDefault();
      node.focus({ preventScroll: true });
    });
    node.addEventListener("pointermove", (e) => {
      if (from === null) return;
      const y = place(e);
      drawn.setAttribute("y", Math.min(from, y));
      drawn.setAttribute("height", Math.abs(y - from));
      drawn.setAttribute("stroke-width", 1.5);
    });
    node.addEventListener("pointerup", (e) => {
      if (from === null) return;
      const y = place(e),
        start = from;
      from = null;
      holding = false;
      if (Math.abs(y - start) < 4) app.unfilter((f) => f.src === "brush" && f.on === axis.name);
      else commit(axis, Math.min(start, y), Math.max(start, y));
    });
    node.addEventListener("pointercancel", () => {
      from = null;
      holding = false;
      ended();
    });
    node.addEventListener("click", (e) => e.stopPropagation());
    node.addEventListener("keydown", (e) => {
      if (e.key === "Escape") {
        app.unfilter((f) => f.src === "brush" && f.on === axis.name);
        return;
      }
      if (e.key !== "ArrowUp" && e.key !== "ArrowDown") return;
      e.preventDefault();
      e.stopPropagation();
      const way = e.key === "ArrowUp" ? 1 : -1;
      if (axis.p && !axis.f) {
        const filter = current(axis),
          codes = filter ? filter.tests[0].codes : axis.at.map((_, i) => i);
        let low = codes[0],
          high = codes[codes.length - 1];
        if (e.shiftKey) low = Math.max(0, Math.min(high, low + way));
        else high = Math.max(low, Math.min(axis.p.n - 1, high + way));
        commit(axis, axis.at[high], axis.at[low]);
        return;
      }
      let [top, foot] = span(axis) || [TOP, TOP + H];
      if (e.shiftKey) foot = Math.max(top + 4, Math.min(TOP + H, foot - way * 6));
      else top = Math.min(foot - 4, Math.max(TOP, top - way * 6));
      commit(axis, top, foot);
    });
    g.append(drawn, node);
    return g;
  }

  return { on: brush, held: () => holding };
}
