// Regions: boxes of limits in which runs fail, from much covered to densely failing; a box can be tried and moved.
import { count, figure, h, percent, plural, s, sentence, swap, united } from "./draw.js";

export function regionsView(app) {
  const note = h(
    "span",
    { class: "xs muted note" },
    "boxes of limits: how much of all failing they cover, and how densely they fail",
  );
  const body = h("div", { class: "two" });
  const el = h(
    "section",
    { class: "card wide regions-card", data: { view: "regions" } },
    h("div", { class: "head" }, h("h2", {}, "Regions"), note),
    body,
  );

  function draw() {
    const data = app.part("regions");
    if (!data) {
      swap(body, h("p", { class: "empty" }, "Searching …"));
      return;
    }
    if (!data.boxes?.length && !data.front?.length) {
      swap(
        body,
        h("p", { class: "empty" }, sentence(data.why)),
        active() ? h("div", {}, sliders()) : null,
      );
      return;
    }
    const focus = body.getRootNode().activeElement?.dataset?.f;
    swap(body, front(data), h("div", {}, list(data), sliders()));
    if (focus)
      body.querySelector(`[data-f="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
  }

  const active = () => app.state.filters.find((f) => f.src === "box");

  function words(tests) {
    return tests
      .map((t) => {
        const p = app.param(t.of);
        if (!t.codes)
          return `${p.name} ${united(`${figure(t.low)} to ${figure(t.high)}`, p.units)}`;
        const ends = t.codes.map((c) => p.labels[c]);
        const text =
          p.numbers && ends.length > 1
            ? `${ends[0]} to ${ends[ends.length - 1]}`
            : ends.slice(0, 4).join(", ") + (ends.length > 4 ? " …" : "");
        return `${p.name} ${united(text, p.units)}`;
      })
      .join(", ");
  }

  const snap = (tests) => app.filter({ src: "box", text: words(tests), tests }, { open: true });

  function front(data) {
    const W = 250,
      H = 150,
      svg = s("svg", {
        width: W + 60,
        height: H + 46,
        role: "group",
        "aria-label": "coverage against density",
      }),
      g = s("g", { transform: "translate(44,8)" });
    svg.append(g);
    for (const t of [0, 0.5, 1])
      g.append(
        s("path", { d: `M0 ${H - t * H}H${W}`, stroke: "var(--sk-line-2)" }),
        s("text", { x: -6, y: H - t * H + 4, "text-anchor": "end" }, `${100 * t}`),
        s("text", { x: t * W, y: H + 16, "text-anchor": "middle" }, `${100 * t}`),
      );
    const pts = data.front.map((f) => [f.coverage * W, H - f.density * H]);
    if (pts.length)
      g.append(
        s("path", {
          d: `M${pts.map((p) => p.map((v) => v.toFixed(1)).join(" ")).join("L")}`,
          fill: "none",
          stroke: "var(--sk-edge)",
        }),
      );
    data.front.forEach((f, i) => {
      if (!f.limits.length) return;
      const dot = s("circle", {
        cx: pts[i][0],
        cy: pts[i][1],
        r: 4,
        fill: "var(--sk-card)",
        stroke: "var(--sk-ink)",
        "stroke-width": 1.5,
        class: "dot",
        tabindex: 0,
        role: "button",
        "data-f": `front-${i}`,
        "aria-label": `${words(f.limits)}: covers ${percent(f.coverage)} %, ${percent(f.density)} % fail`,
        "data-lm-suppress-shortcuts": "true",
      });
      dot.addEventListener("click", () => snap(f.limits));
      dot.addEventListener("keydown", (e) => {
        if (e.key === "Enter") snap(f.limits);
      });
      dot.addEventListener("mousemove", (e) =>
        app.tip(
          e.clientX,
          e.clientY,
          h("b", {}, words(f.limits)),
          h("div", {}, `covers ${percent(f.coverage, 1)} % of all failing`),
          h("div", {}, `${percent(f.density, 1)} % of its runs fail`),
          h("div", { class: "muted" }, "Click: snap to this box"),
        ),
      );
      dot.addEventListener("mouseleave", () => app.untip());
      g.append(dot);
    });
    data.boxes.forEach((b) =>
      g.append(
        s("circle", {
          cx: b.coverage * W,
          cy: H - b.density * H,
          r: 5,
          fill: "var(--sk-fail)",
          stroke: "var(--sk-ink)",
          "pointer-events": "none",
        }),
      ),
    );
    g.append(
      s(
        "text",
        { x: W / 2, y: H + 32, "text-anchor": "middle", class: "axis" },
        "coverage, % of all failing",
      ),
      s(
        "text",
        {
          transform: `translate(-32 ${H / 2}) rotate(-90)`,
          "text-anchor": "middle",
          class: "axis",
        },
        "density, % fail",
      ),
    );
    return svg;
  }

  function list(data) {
    const picked = active();
    return [
      data.why ? h("p", { class: "note-line" }, sentence(data.why)) : null,
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", {}, "Box"),
            h("th", { class: "r" }, "covers"),
            h("th", { class: "r" }, "fail"),
            h("th", { class: "r" }, "runs"),
            h("th", {}),
          ),
        ),
        h(
          "tbody",
          {},
          data.boxes.map((b, i) =>
            h(
              "tr",
              {},
              h(
                "td",
                { title: b.text },
                b.text,
                b.confirmed
                  ? null
                  : h("span", { class: "xs muted" }, " not confirmed on held-out runs"),
              ),
              h("td", { class: "r" }, `${percent(b.coverage)} %`),
              h("td", { class: "r" }, `${percent(b.density)} %`),
              h("td", { class: "r" }, count(b.n)),
              h(
                "td",
                { class: "r" },
                !b.limits.length
                  ? null
                  : h(
                      "button",
                      {
                        class: "btn",
                        type: "button",
                        data: { f: `box-${i}` },
                        "aria-pressed": String(
                          Boolean(
                            picked && JSON.stringify(picked.tests) === JSON.stringify(b.limits),
                          ),
                        ),
                        onclick: () => snap(b.limits),
                      },
                      "Snap",
                    ),
              ),
            ),
          ),
        ),
      ),
    ];
  }

  // The box in force, with its ends as sliders and what it covers as they move.
  function sliders() {
    const filter = active();
    if (!filter)
      return h(
        "p",
        { class: "note-line" },
        "Snap to a box to filter by it and to move its limits.",
      );
    const data = app.part("overview"),
      tally = app.tally(),
      known = tally.pass + tally.fail;
    const said = h(
      "p",
      { class: "note-line", "aria-live": "polite" },
      h("b", {}, `${percent(known ? tally.fail / known : null, 1)} %`),
      ` of ${plural(known, "run")} inside fail, ${percent(data.all.fail ? tally.fail / data.all.fail : null, 1)} % of all failing`,
    );
    return [
      h(
        "div",
        { class: "boxes" },
        filter.tests.map((t, k) => {
          const p = app.param(t.of);
          if (!p.numbers)
            return h(
              "div",
              { class: "slice" },
              h("span", { class: "nm" }, p.name),
              h("span", {}, words([t])),
            );
          const low = t.codes ? t.codes[0] : nearest(p.ends[0], t.low),
            high = t.codes ? t.codes[t.codes.length - 1] : nearest(p.ends[1], t.high);
          const input = (value, end) =>
            h("input", {
              type: "range",
              min: 0,
              max: p.n - 1,
              step: 1,
              value,
              data: { f: `${p.name}-${end}`, lmSuppressShortcuts: "true" },
              "aria-label": `${p.name}, ${end} end`,
              onchange: (e) => move(filter, k, p, end, Number(e.target.value), low, high),
            });
          const a = input(low, "lower"),
            b = input(high, "upper");
          a.value = low;
          b.value = high;
          return h(
            "div",
            { class: "slice two-ends" },
            h("span", { class: "nm" }, p.name),
            a,
            b,
            h("span", { class: "said" }, words([t]).slice(p.name.length + 1)),
          );
        }),
      ),
      said,
    ];
  }

  const nearest = (list_, value) =>
    list_.reduce(
      (best, v, i) => (Math.abs(v - value) < Math.abs(list_[best] - value) ? i : best),
      0,
    );

  function move(filter, k, p, end, value, low, high) {
    if (end === "lower") low = Math.min(value, high);
    else high = Math.max(value, low);
    const test = p.ends
      ? { of: p.name, low: p.ends[0][low], high: p.ends[1][high] }
      : { of: p.name, codes: Array.from({ length: high - low + 1 }, (_, i) => low + i) };
    const tests = filter.tests.map((t, j) => (j === k ? test : t));
    app.filter({ src: "box", text: words(tests), tests });
  }
  return { el, draw, parts: ["regions"], lazy: true, moves: false };
}
