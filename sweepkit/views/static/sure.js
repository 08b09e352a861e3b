// How sure: the rate as runs came in, with a band that holds at every look.
import { count, h, percent, s, sentence, swap } from "./draw.js";

export function sureView(app) {
  const note = h("span", { class: "xs muted" }, "rate against runs, anytime band"),
    body = h("div", { class: "plot" });
  const el = h(
    "section",
    { class: "card sure-card", data: { view: "sure" } },
    h("div", { class: "head" }, h("h2", {}, "How sure"), note),
    body,
  );

  function draw() {
    const data = app.part("sure");
    if (!data) {
      swap(body, h("p", { class: "empty" }, "Counting …"));
      return;
    }
    if (data.why || !data.n_run?.length) {
      swap(body, h("p", { class: "empty" }, sentence(data.why) || "No run has finished."));
      return;
    }
    const from = data.n_run.findIndex((v) => v > 0),
      cut = (xs) => xs.slice(Math.max(0, from));
    const width = Math.max(220, app.width(body, 300)),
      W = width - 52,
      H = 140,
      n = cut(data.n_run),
      last = n[n.length - 1],
      first = Math.max(1, n[0]),
      rates = cut(data.rate),
      lows = cut(data.low),
      highs = cut(data.high);
    const log = last / first > 50,
      fx = (v) =>
        log
          ? (Math.log(v / first) / Math.log(last / first)) * W
          : ((v - first) / Math.max(1, last - first)) * W;
    const fy = (r) => H - r * H,
      svg = s("svg", {
        width,
        height: H + 44,
        role: "img",
        "aria-label": `failure rate settled at ${percent(rates[n.length - 1], 1)} % after ${count(last)} runs`,
      }),
      g = s("g", { transform: "translate(42,8)" });
    svg.append(g);
    for (const t of [0, 0.25, 0.5, 0.75, 1])
      g.append(
        s("path", { d: `M0 ${fy(t)}H${W}`, stroke: "var(--sk-line-2)" }),
        s(
          "text",
          { x: -8, y: fy(t) + 4, "text-anchor": "end" },
          `${100 * t}${t === 1 ? " %" : ""}`,
        ),
      );
    const marks = log ? [] : [0.25, 0.5, 0.75, 1].map((f) => Math.round(f * last));
    if (log) for (let v = 10 ** Math.ceil(Math.log10(first)); v <= last; v *= 10) marks.push(v);
    let edge = -Infinity;
    for (const v of marks) {
      const x = fx(v);
      if (x < edge) continue;
      edge = x + 8 + 6.4 * count(v).length;
      g.append(
        s("path", { d: `M${x} ${H}v4`, stroke: "var(--sk-edge)" }),
        s("text", { x, y: H + 16, "text-anchor": x > W - 16 ? "end" : "middle" }, count(v)),
      );
    }
    const pts = (ys) =>
      n
        .map((v, i) => (ys[i] === null ? null : `${fx(v).toFixed(1)} ${fy(ys[i]).toFixed(1)}`))
        .filter(Boolean);
    g.append(
      s("path", {
        d: `M${pts(highs).join("L")}L${pts(lows).reverse().join("L")}Z`,
        fill: "var(--sk-fail)",
        opacity: 0.26,
      }),
    );
    g.append(
      s("path", {
        d: `M${pts(rates).join("L")}`,
        fill: "none",
        stroke: "var(--sk-fail)",
        "stroke-width": 2,
      }),
    );
    const r = rates[n.length - 1],
      y = fy(r);
    g.append(
      s("circle", { cx: fx(last), cy: y, r: 3.5, fill: "var(--sk-fail)", stroke: "var(--sk-ink)" }),
      s(
        "text",
        { x: fx(last) - 6, y: y < 24 ? y + 20 : y - 12, "text-anchor": "end", class: "strong" },
        `${percent(r, 1)} %`,
      ),
    );
    g.append(
      s(
        "text",
        { x: W / 2, y: H + 32, "text-anchor": "middle", class: "axis" },
        `finished runs${log ? " (log)" : ""}`,
      ),
    );
    svg.addEventListener("mousemove", (e) => {
      const u = e.clientX - svg.getBoundingClientRect().x - 42;
      let i = 0;
      n.forEach((v, j) => {
        if (Math.abs(fx(v) - u) < Math.abs(fx(n[i]) - u)) i = j;
      });
      app.tip(
        e.clientX,
        e.clientY,
        h("b", {}, `after ${count(n[i])} runs`),
        h(
          "div",
          {},
          `${percent(rates[i], 1)} % fail, ${percent(lows[i], 1)} to ${percent(highs[i], 1)} %`,
        ),
      );
    });
    svg.addEventListener("mouseleave", () => app.untip());
    const all = app.part("overview"),
      // Of refined runs the curve is of the grid alone, and says so.
      [own, ...left] = (data.basis || (all.selected || all.all).basis).split("; "),
      basis = left.some((t) => t.includes("left out")) ? own : (all.selected || all.all).basis;
    swap(
      body,
      svg,
      h(
        "p",
        { class: "note-line" },
        [
          data.order,
          ...left.filter((t) => t.includes("left out")),
          `interval: ${app.meta.bases[basis] || basis}`,
        ]
          .map(sentence)
          .join(" "),
      ),
    );
  }
  return { el, draw, parts: ["sure"], lazy: true };
}
