// What the failure map is made of: cells, axes, legend and the words for a cell.
import {
  bounds,
  cividis,
  count,
  figure,
  fitting,
  h,
  onCividis,
  percent,
  plural,
  s,
  shortened,
  united,
  unpack,
} from "./draw.js";

export function colourScale(app, cells) {
  const v = cells.value;
  if (app.state.show === "status") return { kind: "status" };
  if (!v)
    return { kind: "rate", of: (i) => cells.rate[i], share: (r) => r, text: (r) => percent(r) };
  const mean = unpack(v.mean),
    low = v.low ?? 0,
    high = v.high ?? 1,
    width = high > low ? high - low : 1;
  return {
    kind: "value",
    of: (i) => mean[i],
    share: (m) => (m - low) / width,
    text: (m) => figure(m, 3),
    v,
  };
}

export function cellMarks(group, cells, scale, c, { X, Y, W, H }, url, small) {
  const n = cells.pass[c] + cells.fail[c],
    bad = cells.error[c],
    open = cells.pending[c];
  if (scale.kind === "status") {
    const total = n + bad + open;
    let y = Y;
    for (const kind of total ? ["pass", "fail", "error"] : []) {
      const tall = (H * cells[kind][c]) / total;
      if (tall > 0)
        group.append(
          s("rect", {
            x: X,
            y,
            width: W,
            height: tall,
            fill: kind === "error" ? url : `var(--sk-${kind})`,
          }),
        );
      y += tall;
    }
    if (total && open) group.append(emptyFrame(X, y, W, Y + H - y));
    if (!total && cells.there[c])
      group.append(s("rect", { x: X, y: Y, width: W, height: H, fill: "var(--sk-sunk)" }));
    return;
  }
  const value = scale.of(c),
    known = n && !Number.isNaN(value);
  const hurt = bad ? (n ? Math.max(Math.min(4, H / 2), (H * bad) / (n + bad)) : H) : 0;
  if (known)
    group.append(
      s("rect", {
        x: X,
        y: Y,
        width: W,
        height: H,
        fill: cividis(scale.share(value)),
        class: "fillcell",
      }),
    );
  else if (!bad && open) group.append(emptyFrame(X, Y, W, H));
  else if (!bad && cells.there[c] && !n)
    group.append(s("rect", { x: X, y: Y, width: W, height: H, fill: "var(--sk-sunk)" }));
  else if (n && !known) group.append(emptyFrame(X, Y, W, H));
  if (hurt) group.append(s("rect", { x: X, y: Y + H - hurt, width: W, height: hurt, fill: url }));
  if (known && !small) {
    const text = scale.text(value);
    const widest = scale.kind === "rate" ? 3 : text.length; // some cells with and some without mislead
    if (W > widest * 7 + 4 && H - hurt > 15)
      group.append(
        s(
          "text",
          {
            x: X + W / 2,
            y: Y + (H - hurt) / 2 + 4,
            "text-anchor": "middle",
            class: "value",
            style: { fill: onCividis(scale.share(value)) },
          },
          text,
        ),
      );
  }
}

export const emptyFrame = (X, Y, W, H) =>
  s("rect", {
    x: X + 0.5,
    y: Y + 0.5,
    width: Math.max(0, W - 1),
    height: Math.max(0, H - 1),
    fill: "none",
    stroke: "var(--sk-line)",
  });

export function openRing(X, Y, W, H) {
  if (W < 30 || H < 30)
    return s("circle", {
      cx: X + W / 2,
      cy: Y + H / 2,
      r: Math.max(2, Math.min(4, W / 2, H / 2)),
      fill: "var(--sk-halo)",
      stroke: "var(--sk-ink)",
      "stroke-width": 1.6,
    });
  return s(
    "g",
    { transform: `translate(${X + W - 12},${Y + 12})` },
    s("circle", { r: 8, fill: "var(--sk-halo)" }),
    s("circle", { r: 5.6, fill: "none", stroke: "var(--sk-ink)", "stroke-width": 1.6 }),
    s("path", {
      d: "M0-3.4V0l2.4 1.6",
      fill: "none",
      stroke: "var(--sk-ink)",
      "stroke-width": 1.4,
    }),
  );
}

const said = (p, k) => `${p.name} ${united((p.full || p.labels)[k], p.units)}`;

export const cellPlace = (x, y, by, i, j, z) =>
  [
    [x, i],
    [y, j],
    [by, z],
  ]
    .filter(([p]) => p)
    .map(([p, k]) => (p.say ? p.say(k) : said(p, k)));

// A parameter in fewer bins, each of several of its own: `group` says which.
export function coarse(p, n) {
  if (!p || !n || n >= p.n) return p;
  const group = Array.from({ length: n }, () => []);
  for (let c = 0; c < p.n; c++) group[Math.floor((c * n) / p.n)].push(c);
  const ends = [
    group.map((codes) => p.ends[0][codes[0]]),
    group.map((codes) => p.ends[1][codes[codes.length - 1]]),
  ];
  const time = p.kind === "time",
    numbers = ends[0].map((low, k) => (low + ends[1][k]) / 2);
  const told = (codes, at) => p.labels[codes[Math.floor(at * (codes.length - 1))]];
  return {
    ...p,
    n,
    group,
    ends,
    numbers,
    labels: group.map((codes, k) => (time ? told(codes, 0.5) : figure(numbers[k], 3))),
    full: group.map((codes, k) =>
      time
        ? `${told(codes, 0)} to ${told(codes, 1)}`
        : [ends[0][k], ends[1][k]].map((v) => figure(v, 3)).join(ends[0][k] < 0 ? " to " : "–"),
    ),
  };
}

export const codesOf = (p, k) => (p.group ? p.group[k] : [k]);

// The small multiples over one or two parameters: what each map is of, in words and as tests.
export function multiplesOver(parameters) {
  const inner = parameters.length > 1 ? parameters[1].n : 1;
  const at = (z) => (parameters.length > 1 ? [Math.floor(z / inner), z % inner] : [z]);
  const lines = (z) => parameters.map((p, k) => said(p, at(z)[k]));
  return {
    name: parameters.map((p) => p.name).join(" and "),
    n: parameters.reduce((all, p) => all * p.n, 1),
    inner,
    lines,
    say: (z) => lines(z).join(", "),
    tests: (z) => parameters.map((p, k) => ({ of: p.name, codes: codesOf(p, at(z)[k]) })),
  };
}

export function cellWords(x, y, by, i, j, z, cells, c) {
  const n = cells.pass[c] + cells.fail[c];
  return `${cellPlace(x, y, by, i, j, z).join(", ")}: ${n ? `${percent(cells.fail[c] / n)} % of ${plural(n, "run")} fail` : "nothing finished"}${cells.error[c] ? `, ${plural(cells.error[c], "error")}` : ""}${cells.pending[c] ? `, ${count(cells.pending[c])} pending` : ""}`;
}

export function cellTip(app, x, y, by, i, j, z, cells, c, scale) {
  const n = cells.pass[c] + cells.fail[c],
    rows = [h("b", {}, cellPlace(x, y, by, i, j, z).join(", "))];
  const row = (...t) => rows.push(h("div", {}, ...t));
  if (scale.kind === "value" && n)
    row(
      `${scale.v.kind === "margin" ? "mean margin " : `mean ${scale.v.name} `}${united(figure(scale.of(c)), scale.v.units)}`,
    );
  if (n && app.meta.levers.length) {
    const low = cells.low ? cells.low[c] : null,
      basis = app.part("overview").bases[cells.basis[c]];
    row(
      `${percent(cells.rate[c], 1)} % fail`,
      low === null
        ? ""
        : basis === "census" && cells.high[c] - low < 1e-6
          ? ", exact"
          : `, ${bounds({ rate: cells.rate[c], low, high: cells.high[c] })}`,
    );
  }
  if (n)
    row(
      app.meta.levers.length
        ? `${count(cells.fail[c])} of ${plural(n, "finished run")}`
        : plural(n, "finished run"),
    );
  if (cells.error[c]) row(`${plural(cells.error[c], "error")}, in no rate`);
  if (cells.pending[c]) row(`${count(cells.pending[c])} pending`);
  if (!n && !cells.error[c] && !cells.pending[c])
    row(cells.there[c] ? "outside the selection" : "no such runs");
  if (cells.there[c]) rows.push(h("div", { class: "muted" }, "Click: keep these runs"));
  return rows;
}

export function pickedBy(f, x, y, by, i, j, z) {
  const mine = [{ of: x.name, codes: codesOf(x, i) }];
  if (y) mine.push({ of: y.name, codes: codesOf(y, j) });
  if (by) mine.push(...(by.tests ? by.tests(z) : [{ of: by.name, codes: [z] }]));
  return f.tests.every((t) =>
    mine.some((own) => own.of === t.of && own.codes.some((c) => t.codes?.includes(c))),
  );
}

export function cellAxes(x, y, ex, ey, w, tall, first, turned, small) {
  const group = s("g", { class: "axes" });
  const at = ex.c.map((c) => c * w),
    labels = shortened(x.labels, turned ? 12 : 14),
    shown = turned ? at.map(() => true) : fitting(at, labels);
  labels.forEach((text, i) => {
    if (at.length < 60 || shown[i])
      group.append(s("path", { d: `M${at[i]} ${tall}v4`, stroke: "var(--sk-edge)" }));
    if (!shown[i]) return;
    group.append(
      turned
        ? s(
            "text",
            { transform: `translate(${at[i] + 3} ${tall + 10}) rotate(-40)`, "text-anchor": "end" },
            text,
          )
        : s("text", { x: at[i], y: tall + 16, "text-anchor": "middle" }, text),
    );
  });
  if (y) {
    let last = Infinity;
    shortened(y.labels, 12).forEach((text, j) => {
      const Y = tall - ey.c[j] * tall;
      if (y.n < 60) group.append(s("path", { d: `M0 ${Y}h-4`, stroke: "var(--sk-edge)" }));
      if (!first || last - Y < 12) return;
      last = Y;
      group.append(s("text", { x: -8, y: Y + 4, "text-anchor": "end" }, text));
    });
  }
  return group;
}

// Thousands of cells as one picture, with one sheet over it that tells them apart.
export function cellImage(root, cells, scale, z, nx, ny, w, tall, ex, ey) {
  const node = document.createElement("canvas"),
    ratio = Math.max(1, window.devicePixelRatio || 1);
  node.width = Math.round(w * ratio);
  node.height = Math.round(tall * ratio);
  const brush = node.getContext("2d"),
    style = getComputedStyle(root),
    wrong = style.getPropertyValue("--sk-error");
  for (let j = 0; j < ny; j++)
    for (let i = 0; i < nx; i++) {
      const c = (z * ny + j) * nx + i,
        n = cells.pass[c] + cells.fail[c];
      let paint = null;
      if (scale.kind === "status")
        paint = cells.error[c] ? "error" : cells.fail[c] ? "fail" : cells.pass[c] ? "pass" : null;
      else if (n && !Number.isNaN(scale.of(c))) {
        brush.fillStyle = cividis(scale.share(scale.of(c)));
        paint = "rate";
      } else if (cells.error[c]) paint = "error";
      if (!paint) continue;
      if (paint !== "rate") brush.fillStyle = style.getPropertyValue(`--sk-${paint}`);
      const X = ex.e[i] * node.width,
        Y = node.height - ey.e[j + 1] * node.height;
      brush.fillRect(
        X,
        Y,
        (ex.e[i + 1] - ex.e[i]) * node.width + 0.4,
        (ey.e[j + 1] - ey.e[j]) * node.height + 0.4,
      );
      if (paint !== "rate" || !cells.error[c]) continue;
      const tall_ = (ey.e[j + 1] - ey.e[j]) * node.height,
        hurt = Math.max(1, (tall_ * cells.error[c]) / (n + cells.error[c]));
      brush.fillStyle = wrong;
      brush.fillRect(X, Y + tall_ - hurt, (ex.e[i + 1] - ex.e[i]) * node.width, hurt);
    }
  return s("image", {
    href: node.toDataURL(),
    width: w,
    height: tall,
    preserveAspectRatio: "none",
    style: { imageRendering: "pixelated" },
  });
}

export function mapLegend(app, cells, scale, url) {
  const width = 170,
    keys = [],
    bars = [];
  let any = false,
    open = false,
    out = false;
  for (let c = 0; c < cells.pass.length; c++) {
    if (cells.error[c]) any = true;
    const n = cells.pass[c] + cells.fail[c] + cells.error[c];
    if (!n && cells.pending[c]) open = true;
    if (!n && !cells.pending[c] && cells.there[c]) out = true;
  }
  const key = (mark, text) =>
    keys.push(h("span", {}, s("svg", { width: 12, height: 12 }, mark), text));
  if (scale.kind === "status")
    for (const kind of ["pass", "fail"])
      key(s("rect", { width: 12, height: 12, fill: `var(--sk-${kind})` }), kind);
  if (any) key(s("rect", { width: 12, height: 12, fill: url }), "error, by share");
  if (open)
    key(
      s("rect", { x: 0.5, y: 0.5, width: 11, height: 11, fill: "none", stroke: "var(--sk-edge)" }),
      "not run",
    );
  if (out) key(s("rect", { width: 12, height: 12, fill: "var(--sk-sunk)" }), "not selected");
  if (app.state.run !== null)
    key(
      s("circle", {
        cx: 6,
        cy: 6,
        r: 4.5,
        fill: "none",
        stroke: "var(--sk-ink)",
        "stroke-width": 1.5,
      }),
      "open run",
    );
  if (scale.kind !== "status") {
    for (let k = 0; k < 48; k++)
      bars.push(
        s("rect", {
          x: 8 + (k * width) / 48,
          y: 0,
          width: width / 48 + 0.4,
          height: 8,
          fill: cividis(k / 47),
        }),
      );
    const low = scale.kind === "rate" ? 0 : (scale.v.low ?? 0),
      high = scale.kind === "rate" ? 1 : (scale.v.high ?? 1);
    for (const f of scale.kind === "rate" ? [0, 0.25, 0.5, 0.75, 1] : [0, 0.5, 1])
      bars.push(
        s(
          "text",
          {
            x: (scale.kind === "rate" || f ? 8 : 0) + f * width,
            y: 22,
            "text-anchor": scale.kind === "rate" || f ? "middle" : "start",
          },
          scale.kind === "rate" ? percent(f) : figure(low + f * (high - low), 3),
        ),
      );
    bars.push(
      s("text", { x: width + 16, y: 8 }, scale.kind === "rate" ? "% fail" : scale.v.units || ""),
    );
  }
  return [
    bars.length ? s("svg", { width: width + 64, height: 26 }, bars) : h("span"),
    h("span", { class: "k" }, keys),
  ];
}

export function unevenValues(p) {
  if (!p.numbers) return false;
  const d = p.numbers.slice(1).map((v, i) => v - p.numbers[i]);
  return Math.max(...d) > 1.01 * Math.min(...d);
}

export function labelsTurned(x, w) {
  const longest = Math.max(...x.labels.map((t) => Math.min(14, t.length)));
  return !x.numbers && longest * 6.3 + 6 > w / x.n && x.n <= w / 12;
}
