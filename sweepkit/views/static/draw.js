// Elements, numbers, colours and scales. Text always goes in as text: nothing is parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

const TAKES_KEYS = new Set(["button", "input", "select", "summary", "pre", "tr"]);

export function h(tag, attributes = {}, ...children) {
  const node = fill(document.createElement(tag), attributes, children);
  // JupyterLab takes keys for itself unless the focused element itself says not to.
  if (TAKES_KEYS.has(tag)) node.dataset.lmSuppressShortcuts = "true";
  return node;
}

export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style" && typeof value === "object") Object.assign(node.style, value);
    else if (name === "data") Object.assign(node.dataset, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(node, child);
    else node.append(child instanceof Node ? child : String(child));
  }
}

export function swap(node, ...children) {
  node.textContent = "";
  append(node, children);
  return node;
}

// --- numbers ---------------------------------------------------------------------------------------

const WHOLE = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });

export const count = (n) => WHOLE.format(Math.round(n));

export function percent(share, digits = 0) {
  return share === null || share === undefined || Number.isNaN(share)
    ? "–"
    : (100 * share).toFixed(digits);
}

export function figure(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "none";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) {
    return value
      .toExponential(Math.max(0, digits - 2))
      .replace(/\.?0+e/, "e")
      .replace("e+", "e")
      .replace("-", "−");
  }
  const text = Number(value.toPrecision(digits)).toString();
  const plain = size >= 1e4 ? Number(text).toLocaleString("en-GB") : text;
  return plain.replace("-", "−");
}

export function united(text, units) {
  if (!units) return String(text);
  return /^[°%]/.test(units) ? `${text}${units}` : `${text} ${units}`;
}

// Bounds of a rate in words. Those of a sweep that still runs are of all its runs, and the rate of
// what has finished so far can lie outside of them.
export function bounds({ rate, low, high }, digits = 0) {
  if (low === null || low === undefined || Number.isNaN(low)) return "";
  const text = `${percent(low, digits)} to ${percent(high, digits)} %`;
  return rate < low - 1e-9 || rate > high + 1e-9 ? `all runs: ${text}` : text;
}

// A reason as a sentence.
export function sentence(text) {
  if (!text) return "";
  const [first] = text;
  return `${first.toUpperCase()}${text.slice(first.length)}${/[.!?]$/.test(text) ? "" : "."}`;
}

// Labels cut to a length. Where they begin alike, what they begin with is cut: else none would be
// told from another.
export function shortened(labels, most) {
  const texts = labels.map(String);
  if (texts.every((t) => t.length <= most)) return texts;
  let same = texts.length > 1 ? texts[0].length : 0;
  for (const t of texts) while (!t.startsWith(texts[0].slice(0, same))) same--;
  const cut = same > 2 && new Set(texts.map((t) => t.slice(0, most - 1))).size < texts.length;
  return texts.map((t) => (cut && t.length > most ? short(`…${t.slice(same)}`, most) : short(t, most)));
}

export function plural(n, word) {
  return `${count(n)} ${word}${n === 1 ? "" : "s"}`;
}

const KINDS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array };

export function unpack(packed) {
  if (!packed) return null;
  if (packed.array) return packed.array;
  const text = atob(packed.b);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  packed.array = new KINDS[packed.t](bytes.buffer);
  return packed.array;
}

export function wilson(k, n) {
  if (!n) return [NaN, NaN];
  const z = 1.959964,
    p = k / n,
    d = 1 + (z * z) / n,
    c = (p + (z * z) / 2 / n) / d;
  const w = (z / d) * Math.sqrt((p * (1 - p)) / n + (z * z) / 4 / n / n);
  return [Math.max(0, c - w), Math.min(1, c + w)];
}

// --- colours -----------------------------------------------------------------------------------------

const CIVIDIS = [
  [0, 34, 78],
  [18, 53, 112],
  [59, 73, 108],
  [87, 93, 109],
  [112, 113, 115],
  [138, 134, 120],
  [165, 156, 116],
  [195, 180, 105],
  [225, 204, 85],
  [254, 232, 56],
];

export function cividis(share) {
  const u = Math.max(0, Math.min(0.9999, share)) * 9,
    i = Math.floor(u),
    f = u - i;
  return `rgb(${CIVIDIS[i].map((a, j) => Math.round(a + (CIVIDIS[i + 1][j] - a) * f)).join(",")})`;
}

export const onCividis = (share) => (share > 0.52 ? "#10161D" : "#FFFFFF");

export const OUTCOMES = ["pass", "fail", "error", "pending"];
export const VERBS = {
  pass: "passes",
  fail: "fails",
  error: "error",
  pending: "pending",
  skipped: "skipped",
};

export function glyph(kind, size = 14) {
  const icon = s("svg", {
    class: "glyph",
    viewBox: "0 0 14 14",
    width: size,
    height: size,
    "aria-hidden": "true",
  });
  const v = (name) => `var(--sk-${name})`;
  if (kind === "pass") {
    icon.append(
      s("circle", { cx: 7, cy: 7, r: 6.5, fill: v("pass") }),
      s("path", {
        d: "M3.8 7.2 6.1 9.5 10.3 4.9",
        fill: "none",
        stroke: "#fff",
        "stroke-width": 1.7,
      }),
    );
  } else if (kind === "fail") {
    icon.append(
      s("rect", { x: 0.8, y: 0.8, width: 12.4, height: 12.4, fill: v("fail") }),
      s("path", { d: "M4 4 10 10M10 4 4 10", stroke: "#18202B", "stroke-width": 1.8 }),
    );
  } else if (kind === "error") {
    icon.append(
      s("path", {
        d: "M7 1 13.4 12.8H.6Z",
        fill: v("error"),
        stroke: v("error-text"),
        "stroke-width": 0.9,
      }),
      s("path", { d: "M7 4.6V9", stroke: "#fff", "stroke-width": 1.7 }),
      s("circle", { cx: 7, cy: 11, r: 1, fill: "#fff" }),
    );
  } else {
    icon.append(
      s("circle", {
        cx: 7,
        cy: 7,
        r: 5.8,
        fill: "none",
        stroke: v("edge"),
        "stroke-width": 1.4,
        "stroke-dasharray": kind === "skipped" ? null : "2.4 2",
      }),
    );
  }
  return icon;
}

export function status(kind, ...words) {
  return h("span", { class: `st is-${kind}` }, glyph(kind), ...words);
}

let hatches = 0;

export function hatch() {
  const id = `sk-hatch-${++hatches}`;
  const pattern = s(
    "pattern",
    { id, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    s("rect", { width: 5, height: 5, fill: "var(--sk-card)" }),
    s("rect", { width: 2.2, height: 5, fill: "var(--sk-hatch)" }),
  );
  return { defs: s("defs", {}, pattern), url: `url(#${id})` };
}

export function hatchCanvas(context, colours) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const brush = tile.getContext("2d");
  brush.fillStyle = colours.card;
  brush.fillRect(0, 0, 6, 6);
  brush.strokeStyle = colours.hatch;
  brush.lineWidth = 2;
  brush.beginPath();
  for (const k of [-6, 0, 6]) {
    brush.moveTo(k - 1, 7);
    brush.lineTo(k + 7, -1);
  }
  brush.stroke();
  return context.createPattern(tile, "repeat");
}

export function colours(node) {
  const style = getComputedStyle(node);
  const found = {};
  for (const name of [
    "pass",
    "fail",
    "error",
    "pass-text",
    "fail-text",
    "error-text",
    "card",
    "hatch",
    "line",
    "line-2",
    "edge",
    "ink",
    "ink-2",
    "ink-3",
    "sunk",
    "pending",
    "halo",
  ]) {
    found[name] = style.getPropertyValue(`--sk-${name}`).trim();
  }
  return found;
}

export function canvas(width, height) {
  const ratio = Math.max(1, window.devicePixelRatio || 1);
  const node = h("canvas", {
    width: Math.round(width * ratio),
    height: Math.round(height * ratio),
  });
  node.style.width = `${width}px`;
  node.style.height = `${height}px`;
  const context = node.getContext("2d");
  context.scale(ratio, ratio);
  return { node, context };
}

// --- scales ------------------------------------------------------------------------------------------

// Edges and centres of a parameter's cells between 0 and 1; equal steps where true ones are too thin.
export function edges(p, pixels) {
  const equal = () => ({
    e: Array.from({ length: p.n + 1 }, (_, i) => i / p.n),
    c: Array.from({ length: p.n }, (_, i) => (i + 0.5) / p.n),
    log: false,
    even: Boolean(p.numbers) && p.n > 2,
  });
  if (!p.numbers || p.n < 2 || p.numbers.some((v) => v === null)) return equal();
  const f = p.log ? Math.log : (x) => x;
  let e;
  let g = p.numbers.map(f);
  if (p.ends) e = [p.ends[0][0], ...p.ends[1]].map((v) => f(v));
  else {
    e = [g[0] - (g[1] - g[0]) / 2];
    for (let i = 1; i < g.length; i++) e.push((g[i - 1] + g[i]) / 2);
    e.push(g[g.length - 1] + (g[g.length - 1] - g[g.length - 2]) / 2);
  }
  const a = e[0],
    w = e[e.length - 1] - a;
  if (!(w > 0) || !Number.isFinite(w)) return equal();
  e = e.map((x) => (x - a) / w);
  for (let i = 0; i < p.n; i++)
    if ((e[i + 1] - e[i]) * pixels < Math.min(9, (pixels / p.n) * 0.6)) return equal();
  g = p.ends ? p.numbers.map((_, i) => (e[i] + e[i + 1]) / 2) : g.map((x) => (x - a) / w);
  return { e, c: g, log: p.log, even: false };
}

export function ticks(low, high, wanted = 4) {
  if (!(high > low)) return [low];
  const raw = (high - low) / wanted,
    power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((f) => f >= raw * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++)
    found.push(Number((k * step).toPrecision(12)));
  return found;
}

// Labels of ticks: as many digits as their step needs.
export function tickTexts(values) {
  const step = values.length > 1 ? Math.abs(values[1] - values[0]) : 0,
    size = Math.max(...values.map(Math.abs), 0);
  if (!step || size >= 1e5 || size < 1e-3) return values.map((v) => figure(v, 3));
  const digits = Math.max(0, Math.min(8, Math.ceil(-Math.log10(step) - 1e-9)));
  const fine = values.every((v) => Math.abs(v - Number(v.toFixed(digits))) < step * 1e-6)
    ? digits
    : digits + 1;
  return values.map((v) => v.toFixed(fine).replace("-", "−"));
}

// Which labels fit beside each other: positions in pixels, texts, space between them.
export function fitting(at, texts, room = 8, size = 6.3) {
  let last = -Infinity;
  return texts.map((text, i) => {
    const half = (String(text).length * size) / 2;
    if (at[i] - half < last + room && i > 0) return false;
    last = at[i] + half;
    return true;
  });
}

export const short = (text, most) =>
  String(text).length > most ? `${String(text).slice(0, most - 1)}…` : String(text);
