// The failure map: any two parameters, what runs say in each cell, and the runs of a cell on a click.
import { edges, h, hatch, percent, s, short, swap } from "./draw.js";
import {
  cellAxes,
  cellImage,
  cellMarks,
  cellPlace,
  cellTip,
  cellWords,
  coarse,
  codesOf,
  colourScale,
  labelsTurned,
  mapLegend,
  multiplesOver,
  openRing,
  pickedBy,
  unevenValues,
} from "./cells.js";
import { mapChoices } from "./choices.js";

const MANY = 2500; // cells drawn one by one; more become a picture
const MOST = 48; // maps side by side

export function mapView(app) {
  const choices = mapChoices(app);
  const plot = h("div", { class: "plot" }),
    legend = h("div", { class: "legend" }),
    why = h("p", { class: "empty", hidden: true });
  const el = h(
    "section",
    { class: "card map-card", data: { view: "map" } },
    h(
      "div",
      { class: "head" },
      h("h2", {}, "Failure map"),
      choices.layouts,
    ),
    choices.axes,
    plot,
    legend,
    why,
    choices.sliders,
  );
  function draw() {
    choices.draw();
    const { axes } = app.part("overview"),
      sizes = Object.fromEntries(axes || []),
      wanted = ["by", "by2", "y", "x"].map((axis) => app.state[axis]).filter(Boolean);
    if (axes && axes.map(([name]) => name).join("\0") !== wanted.join("\0")) return; // under way
    const named = (name) => coarse(app.param(name), sizes[name]),
      x = named(app.state.x),
      y = named(app.state.y),
      over = [app.state.by, app.state.by2].filter(Boolean).map(named);
    const by = over.length ? multiplesOver(over) : null;
    const cells = app.cells();
    plot.dataset.exact = String(cells.exact);
    const wide = Math.max(260, app.width(plot, 500));
    const focus = plot.getRootNode().activeElement?.closest?.(".hit"),
      at = focus && plot.contains(focus) ? focus.dataset.i : null;
    const hatched = hatch();
    const panels = by ? Math.min(by.n, MOST) : 1,
      fit = Math.max(2, Math.min(4, Math.floor(wide / 130)));
    const across = !by || panels === 1 ? 1 : crosswise(by, panels, wide, fit);
    const left = y
        ? Math.min(100, 34 + 6.4 * Math.max(...y.labels.map((t) => Math.min(12, t.length))))
        : 12,
      gap = 14;
    const w = (wide - left - 8 - gap * (across - 1)) / across;
    const rows = Math.ceil(panels / across);
    const tall = !y
      ? 70
      : by
        ? Math.max(90, Math.min(190, 280 / Math.min(rows, across > 2 ? 3 : 2)))
        : Math.max(120, Math.min(300, 60 * y.n + 60));
    const head = over.length > 1 ? 34 : by ? 20 : 4,
      foot = 24,
      step = tall + head + foot;
    const turned = labelsTurned(x, w);
    const below = turned ? 44 : 0;
    const height = rows * (step + below) + 20;
    const svg = s(
      "svg",
      {
        width: wide,
        height,
        role: "group",
        "aria-label": `${cells.value ? cells.value.name : "failure rate"} over ${x.name}${y ? ` and ${y.name}` : ""}`,
      },
      hatched.defs,
    );
    const scale = colourScale(app, cells);
    for (let z = 0; z < panels; z++) {
      const ox = left + (z % across) * (w + gap),
        oy = Math.floor(z / across) * (step + below) + head;
      svg.append(
        panel({
          x,
          y,
          by,
          z,
          w,
          tall,
          ox,
          oy,
          cells,
          scale,
          url: hatched.url,
          first: z % across === 0,
          turned,
          small: Boolean(by),
        }),
      );
    }
    const mid = left + (wide - left) / 2;
    const title = (p, scaled) => `${p.name}${p.units ? `, ${p.units}` : ""}${scaled}`;
    const ex = edges(x, w),
      ey = y ? edges(y, tall) : null;
    const note = (e, p) => (e.log ? " (log)" : e.even && unevenValues(p) ? " (not to scale)" : "");
    svg.append(
      s(
        "text",
        { x: mid, y: height - 4, "text-anchor": "middle", class: "axis" },
        title(x, note(ex, x)),
      ),
    );
    if (y)
      svg.append(
        s(
          "text",
          {
            transform: `translate(11 ${(height - 20) / 2}) rotate(-90)`,
            "text-anchor": "middle",
            class: "axis",
          },
          title(y, note(ey, y)),
        ),
      );
    swap(plot, svg);
    if (at !== null) plot.querySelector(`.hit[data-i="${at}"]`)?.focus({ preventScroll: true });
    else {
      const first = plot.querySelector(".hit");
      if (first) first.setAttribute("tabindex", "0");
    }
    swap(legend, mapLegend(app, cells, scale, hatched.url));
    empty(cells);
    if (by && by.n > MOST) {
      why.hidden = false;
      why.textContent = `The first ${MOST} of ${by.n} maps. ${why.textContent}`;
    }
  }

  // Maps in a row: of two parameters those of the second, where they have the room.
  function crosswise(by, panels, wide, fit) {
    if (by.inner > 1) return by.inner <= fit ? by.inner : fit;
    return panels > 4 && wide > 640 ? 3 : 2;
  }

  const movable = () => app.meta.levers.some((r) => r.movable);

  function empty(cells) {
    const sum = (name) => cells[name].reduce((a, b) => a + b, 0),
      pass = sum("pass"),
      fail = sum("fail"),
      error = sum("error"),
      pending = sum("pending"),
      known = pass + fail;
    let text = "";
    if (!known && !error && !pending)
      text = app.state.filters.length
        ? "No run matches all filters; remove one."
        : "No run is at these values of the sliders.";
    else if (!known && error)
      text = `${app.state.filters.length ? "None of the selected runs" : "No run"} has finished with outputs: all that ended errored. Kinds, below, says how.`;
    else if (!known)
      text = app.state.filters.length
        ? "None of the selected runs has finished yet, so there is no rate to show."
        : "No run has finished yet, so there is no rate to show.";
    else if (!cells.value && app.meta.levers.length && !fail)
      text = `Every finished run passes.${movable() ? " Move a limit above to see where runs come close." : ""}`;
    else if (!cells.value && app.meta.levers.length && !pass)
      text = `Every finished run fails.${movable() ? " Move a limit above, or colour by margin, to see which come close." : ""}`;
    else if (!cells.value && !app.meta.levers.length)
      text = "Nothing says which runs fail, so every finished run counts as passing.";
    if (cells.value && cells.value.low === null)
      text = `${cells.value.name} has no number in any finished run.`;
    why.textContent = text;
    why.hidden = !text;
  }

  function panel({ x, y, by, z, w, tall, ox, oy, cells, scale, url, first, turned, small }) {
    const ex = edges(x, w),
      ey = y ? edges(y, tall) : { e: [0, 1], c: [0.5] };
    const nx = x.n,
      ny = y ? y.n : 1,
      group = s("g", { transform: `translate(${ox},${oy})` });
    const picture = nx * ny > MANY || (by && nx * ny * Math.min(by.n, MOST) > 2 * MANY);
    const run = app.part("run"),
      open =
        run && app.state.run === run.run
          ? Object.fromEntries(run.point.map((p) => [p.name, p.code]))
          : null,
      here = open && (!by || by.tests(z).every((t) => t.codes.includes(open[t.of]))),
      inside = (p, k) => codesOf(p, k).includes(open[p.name]);
    const picked = app.state.filters.find((f) => f.src === "map");
    const gap = small || w / nx < 12 ? 0.5 : 1,
      between = (size) => Math.min(gap, size * 0.06); // a gap as wide as its cells would grey them
    if (picture) group.append(cellImage(el, cells, scale, z, nx, ny, w, tall, ex, ey));
    let tallies = [0, 0, 0];
    for (let j = 0; j < ny; j++) {
      for (let i = 0; i < nx; i++) {
        const c = (z * ny + j) * nx + i;
        const X = ex.e[i] * w,
          W = (ex.e[i + 1] - ex.e[i]) * w,
          Y = tall - ey.e[j + 1] * tall,
          H = (ey.e[j + 1] - ey.e[j]) * tall;
        tallies[0] += cells.fail[c];
        tallies[1] += cells.pass[c] + cells.fail[c];
        tallies[2] += cells.error[c];
        if (picture) continue;
        const box = {
          X: X + between(W) / 2,
          Y: Y + between(H) / 2,
          W: Math.max(0.5, W - between(W)),
          H: Math.max(0.5, H - between(H)),
        };
        cellMarks(group, cells, scale, c, box, url, small);
        if (picked && pickedBy(picked, x, y, by, i, j, z)) {
          group.append(
            s("rect", {
              x: X + 1.5,
              y: Y + 1.5,
              width: Math.max(1, W - 3),
              height: Math.max(1, H - 3),
              fill: "none",
              stroke: "var(--sk-halo)",
              "stroke-width": 5,
            }),
            s("rect", {
              x: X + 1,
              y: Y + 1,
              width: Math.max(1, W - 2),
              height: Math.max(1, H - 2),
              fill: "none",
              stroke: "var(--sk-ink)",
              "stroke-width": 2,
            }),
          );
        }
        if (here && inside(x, i) && (!y || inside(y, j))) group.append(openRing(X, Y, W, H));
        group.append(hit(x, y, by, cells, scale, c, i, j, z, X, Y, W, H));
      }
    }
    if (picture) group.append(sheet(x, y, by, cells, scale, z, w, tall, ex, ey));
    group.append(cellAxes(x, y, ex, ey, w, tall, first, turned, small));
    if (by) {
      const known = tallies[1],
        lines = by.lines(z),
        roomy = w > 62 + 6.6 * Math.min(14, lines[0].length);
      lines.forEach((line, k) =>
        group.append(
          s(
            "text",
            { x: 0, y: -6 - 14 * (lines.length - 1 - k), class: "panel" },
            s("title", {}, by.say(z)),
            short(line, Math.floor((w - (roomy && !k ? 62 : 0)) / 6.6)),
          ),
        ),
      );
      if (roomy)
        group.append(
          s(
            "text",
            { x: w, y: -6 - 14 * (lines.length - 1), "text-anchor": "end" },
            known
              ? app.meta.local // weighted runs are no plain counts
                ? `${percent(tallies[0] / known)} % fail`
                : ""
              : tallies[2]
                ? "errors"
                : "not run",
          ),
        );
    }
    return group;
  }

  function hit(x, y, by, cells, scale, c, i, j, z, X, Y, W, H) {
    const key = `${z}-${j}-${i}`;
    const node = s("rect", {
      class: "hit",
      x: X,
      y: Y,
      width: W,
      height: H,
      fill: "transparent",
      tabindex: -1,
      role: "button",
      "data-i": key,
      "data-x": i,
      "data-y": j,
      "data-lm-suppress-shortcuts": "true",
      "aria-label": cellWords(x, y, by, i, j, z, cells, c),
    });
    const describe = (e) => {
      const b = node.getBoundingClientRect();
      app.tip(
        e.clientX ?? b.x + b.width / 2,
        e.clientY ?? b.y + b.height / 2,
        ...cellTip(app, x, y, by, i, j, z, cells, c, scale),
      );
    };
    node.addEventListener("mousemove", describe);
    node.addEventListener("mouseleave", () => app.untip());
    node.addEventListener("focus", () => {
      if (node.matches(":focus-visible")) describe({});
    });
    node.addEventListener("blur", () => app.untip());
    node.addEventListener("click", () => pick(x, y, by, i, j, z));
    node.addEventListener("keydown", (e) => steer(e, node, x, y, by, i, j, z));
    return node;
  }

  function steer(e, node, x, y, by, i, j, z) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (e.key === "Enter" || e.key === " ") {
      e.preventDefault();
      pick(x, y, by, i, j, z);
      return;
    }
    if (!moves[e.key]) return;
    e.preventDefault();
    e.stopPropagation();
    const [a, b] = moves[e.key];
    const next =
      plot.querySelector(`.hit[data-i="${z}-${j + b}-${i + a}"]`) ||
      (a && plot.querySelector(`.hit[data-i="${z + a}-${j}-${a > 0 ? 0 : x.n - 1}"]`));
    if (!next) return;
    node.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  }

  function pick(x, y, by, i, j, z) {
    app.untip();
    const picked = app.state.filters.find((f) => f.src === "map");
    if (picked && pickedBy(picked, x, y, by, i, j, z)) {
      app.unfilter((f) => f.src === "map");
      return;
    }
    const tests = [{ of: x.name, codes: codesOf(x, i) }];
    if (y) tests.push({ of: y.name, codes: codesOf(y, j) });
    if (by) tests.push(...by.tests(z));
    app.filter(
      { src: "map", text: cellPlace(x, y, by, i, j, z).join(", "), tests },
      { open: true },
    );
  }

  function sheet(x, y, by, cells, scale, z, w, tall, ex, ey) {
    const node = s("rect", {
      class: "hit",
      width: w,
      height: tall,
      fill: "transparent",
      tabindex: 0,
      role: "application",
      "data-i": `${z}-sheet`,
      "data-lm-suppress-shortcuts": "true",
      "aria-label": `${x.name} by ${y ? y.name : ""}: arrows move between cells, Enter picks`,
    });
    const ny = y ? y.n : 1;
    let here = [0, 0];
    const find = (e) => {
      const b = node.getBoundingClientRect(),
        u = (e.clientX - b.x) / b.width,
        v = 1 - (e.clientY - b.y) / b.height;
      return [
        Math.max(0, ex.e.findIndex((t) => t > u) - 1),
        Math.max(0, ey.e.findIndex((t) => t > v) - 1),
      ];
    };
    const tell = ([i, j], px, py) =>
      app.tip(px, py, ...cellTip(app, x, y, by, i, j, z, cells, (z * ny + j) * x.n + i, scale));
    node.addEventListener("mousemove", (e) => {
      here = find(e);
      tell(here, e.clientX, e.clientY);
    });
    node.addEventListener("mouseleave", () => app.untip());
    node.addEventListener("click", (e) => {
      const [i, j] = find(e);
      pick(x, y, by, i, j, z);
    });
    node.addEventListener("keydown", (e) => {
      const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
      if (e.key === "Enter") {
        pick(x, y, by, here[0], here[1], z);
        return;
      }
      if (!moves[e.key]) return;
      e.preventDefault();
      here = [
        Math.max(0, Math.min(x.n - 1, here[0] + moves[e.key][0])),
        Math.max(0, Math.min(ny - 1, here[1] + moves[e.key][1])),
      ];
      const b = node.getBoundingClientRect();
      tell(here, b.x + ex.c[here[0]] * b.width, b.y + (1 - ey.c[here[1]]) * b.height);
    });
    return node;
  }

  return { el, draw, moves: true, also: ["drags", "run"] };
}
