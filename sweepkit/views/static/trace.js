// A run's trace, beside that of the nearest run that passes, with the limits on it.
import { figure, s, tickTexts, ticks } from "./draw.js";

export const traceKey = (kind) =>
  s(
    "svg",
    { width: 14, height: 4 },
    s("rect", {
      width: 14,
      height: 3,
      fill: kind === "near" ? "var(--sk-pass-text)" : `var(--sk-${kind})`,
    }),
  );

export function tracePlot(t, data, W = 268) {
  const H = 112,
    xs = t.lines.flatMap((l) => [l.x[0], l.x[l.x.length - 1]]).filter((v) => v !== undefined),
    ys = t.lines
      .flatMap((l) => l.y)
      .filter((v) => v !== null)
      .concat(t.limits);
  let low = Math.min(...ys),
    high = Math.max(...ys);
  if (!(high > low)) {
    low -= 1;
    high += 1;
  }
  const pad = 0.06 * (high - low),
    x0 = Math.min(...xs),
    x1 = Math.max(...xs, x0 + 1e-9);
  low -= pad;
  high += pad;
  const fx = (v) => ((v - x0) / (x1 - x0)) * W,
    fy = (v) => H - ((v - low) / (high - low)) * H;
  const svg = s("svg", {
      viewBox: `0 0 ${W + 52} ${H + 34}`,
      width: W + 52,
      class: "trace",
      role: "img",
      "aria-label": `${t.name} over ${t.along}`,
    }),
    g = s("g", { transform: "translate(42,6)" });
  svg.append(g);
  t.limits.forEach((limit, k) => {
    const side = t.beyond ? t.beyond[k] : limit >= 0 ? "above" : "below";
    if (side === "above")
      g.append(
        s("rect", { y: 0, width: W, height: Math.max(0, fy(limit)), fill: "var(--sk-fail-soft)" }),
      );
    else if (side === "below")
      g.append(
        s("rect", {
          y: fy(limit),
          width: W,
          height: Math.max(0, H - fy(limit)),
          fill: "var(--sk-fail-soft)",
        }),
      );
  });
  const up = ticks(low, high, 3),
    texts = tickTexts(up);
  up.forEach((v, i) =>
    g.append(
      s("path", { d: `M0 ${fy(v)}H${W}`, stroke: "var(--sk-line-2)" }),
      s("text", { x: -6, y: fy(v) + 4, "text-anchor": "end" }, texts[i]),
    ),
  );
  ticks(x0, x1, 3).forEach((v, i, all) =>
    g.append(
      s("path", { d: `M${fx(v)} ${H}v4`, stroke: "var(--sk-edge)" }),
      s(
        "text",
        {
          x: fx(v),
          y: H + 16,
          "text-anchor": i === all.length - 1 && fx(v) > W - 20 ? "end" : "middle",
        },
        i === all.length - 1 ? `${figure(v)} ${t.along_units || t.along}` : figure(v),
      ),
    ),
  );
  for (const limit of t.limits)
    g.append(
      s("path", { d: `M0 ${fy(limit)}H${W}`, stroke: "var(--sk-ink)", "stroke-dasharray": "5 3" }),
    );
  const path = (l) => {
    let d = "",
      lifted = true;
    l.x.forEach((v, i) => {
      if (l.y[i] === null) {
        lifted = true;
        return;
      }
      d += `${lifted ? "M" : "L"}${fx(v).toFixed(1)} ${fy(l.y[i]).toFixed(1)}`;
      lifted = false;
    });
    return d;
  };
  for (const l of t.lines.slice().reverse())
    g.append(
      s("path", {
        d: path(l),
        fill: "none",
        stroke: l.run === data.run ? `var(--sk-${data.outcome})` : "var(--sk-pass-text)",
        "stroke-width": l.run === data.run ? 2.2 : 1.4,
      }),
    );
  return svg;
}
