// All pairs of parameters as small maps; one sets the map's axes, a cell of it filters.
import { canvas, cividis, colours, h, hatchCanvas, sentence, swap, unpack } from "./draw.js";

export function pairsView(app) {
  const note = h(
    "span",
    { class: "xs muted note" },
    "sorted by excess: variance of failing that the pair explains beyond its two parameters",
  );
  const grid = h("div", { class: "grid" });
  const el = h(
    "section",
    { class: "card wide pairs-card", data: { view: "pairs" } },
    h("div", { class: "head" }, h("h2", {}, "Pairs"), note),
    grid,
  );
  let drawn = null,
    theme = "",
    across = { width: 0, n: 6 };

  function draw() {
    const data = app.part("pairs");
    if (!data) {
      swap(grid, h("p", { class: "empty" }, "Counting …"));
      return;
    }
    if (!data.pairs?.length) {
      swap(grid, h("p", { class: "empty" }, sentence(data.why)));
      drawn = null;
      return;
    }
    const width = Math.max(90, Math.floor((app.width(grid, 800) - (columns() - 1) * 12) / columns()) - 14);
    const now = `${app.root.dataset.theme}${width}`;
    if (drawn === data && theme === now) {
      press();
      return;
    }
    drawn = data;
    theme = now;
    const most = Math.max(1e-9, ...data.pairs.map((p) => p.excess || 0)),
      paint = colours(app.root);
    const focus = grid.getRootNode().activeElement?.closest?.(".pair")?.dataset.k;
    swap(
      grid,
      data.pairs.map((pair) => thumbnail(pair, width, most, paint)),
      data.note ? h("p", { class: "note-line" }, data.note) : null,
      data.why ? h("p", { class: "note-line" }, sentence(data.why)) : null,
    );
    if (focus)
      grid.querySelector(`[data-k="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
    press();
  }

  // As the style sheet has them; asked once a width, as asking makes the browser lay out anew.
  function columns() {
    const width = app.width(grid, 800);
    if (across.width !== width)
      across = { width, n: getComputedStyle(grid).gridTemplateColumns.split(" ").length };
    return across.n;
  }

  function press() {
    for (const node of grid.querySelectorAll(".pair")) {
      const mine = [app.state.x, app.state.y].sort().join("\u0000");
      node.setAttribute(
        "aria-pressed",
        String([node.dataset.x, node.dataset.y].sort().join("\u0000") === mine),
      );
    }
  }

  function thumbnail(pair, width, most, paint) {
    const { nx, ny } = pair,
      tall = 62,
      tally = unpack(pair.tally),
      { node, context } = canvas(width, tall);
    const pattern = hatchCanvas(context, paint);
    for (let j = 0; j < ny; j++)
      for (let i = 0; i < nx; i++) {
        const [pass, fail, pending, error] = tally.subarray((j * nx + i) * 4, (j * nx + i) * 4 + 4),
          n = pass + fail;
        const X = Math.round((i * width) / nx),
          Y = Math.round(tall - ((j + 1) * tall) / ny);
        const gap = Math.min(width / nx, tall / ny) > 8 ? 1 : 0,
          W = Math.round(((i + 1) * width) / nx) - X - gap,
          H = Math.round(tall - (j * tall) / ny) - Y - gap;
        if (n) {
          context.fillStyle = cividis(fail / n);
          context.fillRect(X, Y, W, H);
        } else if (!error && pending) {
          context.strokeStyle = paint.line;
          context.strokeRect(X + 0.5, Y + 0.5, W - 1, H - 1);
        } else if (!error) {
          context.fillStyle = paint.sunk;
          context.fillRect(X, Y, W, H);
        }
        if (error) {
          const hurt = n ? Math.max(Math.min(2, H / 4), (H * error) / (n + error)) : H;
          context.fillStyle = pattern;
          context.fillRect(X, Y + H - hurt, W, hurt);
        }
      }
    node.setAttribute("aria-hidden", "true");
    const label = `${pair.x} × ${pair.y}`;
    const button = h(
      "button",
      {
        class: "pair",
        type: "button",
        data: { k: label, x: pair.x, y: pair.y },
        title: "Click: these axes on the map. Shift and click a cell: keep its runs too",
        "aria-label": `${label}${pair.excess === null ? "" : `, excess ${pair.excess.toFixed(3)}`}`,
        onclick: (e) => choose(e, pair, node),
      },
      h("div", { class: "t" }, label),
      node,
      h(
        "div",
        { class: "e" },
        h("span", {}, "excess"),
        h("b", {}, pair.excess === null ? "–" : pair.excess.toFixed(3)),
      ),
      h(
        "div",
        { class: "ebar" },
        h("i", { style: { width: `${(100 * Math.max(0, pair.excess || 0)) / most}%` } }),
      ),
    );
    return button;
  }

  function choose(e, pair, node) {
    const axes = {
      x: pair.x,
      y: pair.y,
      by: [pair.x, pair.y].includes(app.state.by) ? "" : app.state.by,
      by2: [pair.x, pair.y].includes(app.state.by2) ? "" : app.state.by2,
    };
    const same = app.state.x === pair.x && app.state.y === pair.y;
    const on = e.target === node && (same || e.shiftKey);
    if (!on) {
      app.set(axes);
      return;
    }
    const b = node.getBoundingClientRect(),
      p = app.param(pair.x),
      q = app.param(pair.y);
    const i = Math.floor(((e.clientX - b.x) / b.width) * pair.nx),
      j = Math.floor((1 - (e.clientY - b.y) / b.height) * pair.ny);
    const codes = (k, m, n) =>
      Array.from({ length: n }, (_, c) => c).filter(
        (c) => Math.floor((c * m) / n) === k || (m === n && c === k),
      );
    const tests = [
      { of: p.name, codes: codes(i, pair.nx, p.n) },
      { of: q.name, codes: codes(j, pair.ny, q.n) },
    ];
    const text = [
      [p, tests[0]],
      [q, tests[1]],
    ]
      .map(
        ([a, t]) =>
          `${a.name} ${t.codes.length ? `${a.labels[t.codes[0]]}${t.codes.length > 1 ? ` to ${a.labels[t.codes[t.codes.length - 1]]}` : ""}` : ""}`,
      )
      .join(", ");
    app.state = { ...app.state, ...axes };
    app.filter({ src: "map", text, tests }, { open: true });
  }
  return { el, draw, parts: ["pairs"], lazy: true };
}
