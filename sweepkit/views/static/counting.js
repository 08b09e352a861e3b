// The runs as columns, judged and counted here at any limits.
import { wilson } from "./draw.js";

const PASSED = 0,
  FAILED = 1,
  PENDING = 2,
  ERRORED = 3,
  SKIPPED = 4;
const NONE = 255; // an output's code where there is no number
const TYPES = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array };
const PAIR_BINS = 12;

async function inflated(packed) {
  if (!packed) return null;
  const bytes = Uint8Array.from(atob(packed.z), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new TYPES[packed.t](await new Response(stream).arrayBuffer());
}

// Codes along some dims, repeated for each run of the whole shape (C order).
function spread(codes, own, shape, n) {
  if (!own) return codes;
  const out = new codes.constructor(n);
  if (!own.length) return out.fill(codes[0] ?? 0);
  const after = shape.map((_, k) => shape.slice(k + 1).reduce((a, b) => a * b, 1));
  if (own.length === 1) {
    const step = after[own[0]],
      size = shape[own[0]];
    for (let r = 0, c = 0; r < n; r += step, c = c + 1 === size ? 0 : c + 1)
      out.fill(codes[c], r, r + step);
    return out;
  }
  const steps = own.map((_, j) => own.slice(j + 1).reduce((a, k) => a * shape[k], 1));
  for (let r = 0; r < n; r++) {
    let at = 0;
    for (let j = 0; j < own.length; j++)
      at += (Math.floor(r / after[own[j]]) % shape[own[j]]) * steps[j];
    out[r] = codes[at];
  }
  return out;
}

export class Runs {
  // Unpack what a page carries: `packed` as its Python side made it, `meta` as the views want it.
  static async of(packed, meta) {
    const made = new Runs();
    made.n = packed.n;
    made.meta = meta;
    made.base = await inflated(packed.base);
    made.weights = await inflated(packed.weights);
    made.codes = new Map();
    for (let k = 0; k < packed.params.length; k++) {
      const { dims, codes } = packed.params[k];
      made.codes.set(
        meta.params[k].name,
        spread(await inflated(codes), dims, packed.shape, packed.n),
      );
    }
    made.levers = await Promise.all(packed.levers.map(inflated));
    made.outputs = new Map();
    for (let k = 0; k < packed.outputs.length; k++) {
      const { levels, codes } = packed.outputs[k];
      made.outputs.set(meta.outputs[k][0], { levels, codes: await inflated(codes) });
    }
    made.worth = packed.worth;
    if (made.worth.kind === "strata") await made.lay(packed);
    return made;
  }

  // Which point each run repeats, where runs are repeated.
  async lay({ shape }) {
    const points = this.worth.points;
    if (!points) return;
    this.n_points = points.reduce((a, p) => a * p.n, 1);
    this.point = new Uint32Array(this.n);
    let step = this.n_points;
    for (let k = 0; k < points.length; k++) {
      step /= points[k].n;
      if (points[k].n < 2) continue;
      const codes = spread(await inflated(points[k].codes), [k], shape, this.n);
      for (let r = 0; r < this.n; r++) this.point[r] += codes[r] * step;
    }
  }

  // --- which runs ----------------------------------------------------------------------------------

  holds(k, stop) {
    const codes = this.levers[k],
      rising = this.meta.levers[k].rising,
      out = new Uint8Array(this.n);
    for (let r = 0; r < this.n; r++) out[r] = rising ? codes[r] > stop : codes[r] <= stop;
    return out;
  }

  // How many requirements each run violates at these limits, and the outcome that follows.
  judge(stops) {
    const key = JSON.stringify(stops);
    if (this.judged?.key === key) return this.judged;
    const before = this.judged?.stops,
      moved = before ? stops.map((v, k) => (v !== before[k] ? k : -1)).filter((k) => k >= 0) : [];
    let broken;
    if (before && moved.length === 1) {
      // One limit moved: only its own verdicts are taken anew.
      broken = this.judged.broken;
      const k = moved[0],
        codes = this.levers[k],
        rising = this.meta.levers[k].rising,
        a = before[k],
        b = stops[k];
      for (let r = 0; r < this.n; r++) {
        const c = codes[r];
        broken[r] += rising ? (c <= b) - (c <= a) : (c > b) - (c > a);
      }
    } else {
      broken = new Uint8Array(this.n);
      for (let k = 0; k < stops.length; k++) {
        const codes = this.levers[k],
          rising = this.meta.levers[k].rising,
          stop = stops[k];
        for (let r = 0; r < this.n; r++) broken[r] += rising ? codes[r] <= stop : codes[r] > stop;
      }
    }
    const outcome = new Uint8Array(this.n);
    for (let r = 0; r < this.n; r++)
      outcome[r] = this.base[r] === PASSED && broken[r] ? FAILED : this.base[r];
    this.judged = { key, stops: stops.slice(), broken, outcome };
    return this.judged;
  }

  // Runs that all filters leave, and none at all where nothing is filtered.
  mask(filters, at = {}, but = "") {
    const tests = filters.filter((f) => f.src !== but).flatMap((f) => f.tests);
    for (const [of, code] of Object.entries(at)) tests.push({ of, codes: [code] });
    const key = JSON.stringify(tests);
    this.masks = this.masks || new Map();
    if (!tests.length) return null;
    if (this.masks.has(key)) return this.masks.get(key);
    const out = new Uint8Array(this.n).fill(1);
    for (const test of tests) {
      const codes = this.codes.get(test.of);
      if (!codes || !test.codes) continue;
      const wanted = new Uint8Array(65536);
      for (const c of test.codes) wanted[c] = 1;
      for (let r = 0; r < this.n; r++) out[r] &= wanted[codes[r]];
    }
    if (this.masks.size > 6) this.masks.clear();
    this.masks.set(key, out);
    return out;
  }

  // Which cell of some parameters each run is in, the last one fastest; bins may be joined.
  cells(names, sizes) {
    const key = JSON.stringify([names, sizes]);
    if (this.layout?.key === key) return this.layout;
    const cell = new Uint32Array(this.n);
    let n = 1;
    names.forEach((name, k) => {
      const codes = this.codes.get(name),
        whole = this.meta.params.find((p) => p.name === name).n,
        size = sizes[k],
        to = Uint16Array.from({ length: whole }, (_, c) => Math.floor((c * size) / whole));
      n *= size;
      for (let r = 0; r < this.n; r++) cell[r] = cell[r] * size + to[codes[r]];
    });
    const there = new Float64Array(n);
    for (let r = 0; r < this.n; r++) if (this.base[r] !== SKIPPED) there[cell[r]]++;
    this.layout = { key, cell, n, there, names };
    return this.layout;
  }

  // --- counts --------------------------------------------------------------------------------------

  // Runs of each point by outcome. All cells but those of single replicates are made of whole
  // points, so that the runs are gone through once for all views.
  points(outcome, mask) {
    if (this.pointed?.outcome !== outcome) this.pointed = { outcome, by: new Map() };
    const { by } = this.pointed;
    if (!by.has(mask)) {
      const tally = new Uint32Array(this.n_points * 5),
        of = this.point;
      for (let r = 0; r < this.n; r++) if (!mask || mask[r]) tally[of[r] * 5 + outcome[r]]++;
      by.set(mask, tally);
    }
    return by.get(mask);
  }

  // Which cell each point is in, in the order of the runs' cells.
  home(cell) {
    this.homes = this.homes || new WeakMap();
    if (!this.homes.has(cell)) {
      const home = new Uint32Array(this.n_points),
        of = this.point;
      for (let r = 0; r < this.n; r++) home[of[r]] = cell[r];
      this.homes.set(cell, home);
    }
    return this.homes.get(cell);
  }

  alone(names) {
    return names.some(
      (name) => this.meta.params.find((p) => p.name === name).role === "replicate",
    );
  }

  // Runs of each cell by outcome, with rates, and intervals where these can be told without Python.
  count(outcome, mask, { cell, n, names }) {
    const tally = new Float64Array(n * 5);
    if (this.point && !this.alone(names)) {
      const points = this.points(outcome, mask),
        home = this.home(cell);
      for (let p = 0; p < this.n_points; p++)
        for (let k = 0; k < 5; k++) tally[home[p] * 5 + k] += points[p * 5 + k];
    } else for (let r = 0; r < this.n; r++) if (!mask || mask[r]) tally[cell[r] * 5 + outcome[r]]++;
    const part = (k) => Float64Array.from({ length: n }, (_, c) => tally[c * 5 + k]);
    const found = {
      pass: part(PASSED),
      fail: part(FAILED),
      pending: part(PENDING),
      error: part(ERRORED),
    };
    found.rate = found.pass.map((p, c) => found.fail[c] / (p + found.fail[c]));
    if (this.weights) this.weigh(found, outcome, mask, cell, n);
    this.bound(found, outcome, mask, cell, n, names);
    return found;
  }

  weigh(found, outcome, mask, cell, n) {
    const failing = new Float64Array(n),
      known = new Float64Array(n);
    for (let r = 0; r < this.n; r++) {
      if ((mask && !mask[r]) || outcome[r] > FAILED) continue;
      known[cell[r]] += this.weights[r];
      if (outcome[r] === FAILED) failing[cell[r]] += this.weights[r];
    }
    found.rate = failing.map((f, c) => f / known[c]);
  }

  bound(found, outcome, mask, cell, n, names) {
    found.low = found.high = null;
    if (this.worth.kind === "none") return;
    const low = new Float64Array(n),
      high = new Float64Array(n).fill(1);
    const alone = this.alone(names);
    const { kind, random } = this.worth,
      exact = (alone || kind === "bounds") && kind !== "sample" && !random;
    const worth = exact ? null : this.worths(found, outcome, mask, cell, n, alone);
    for (let c = 0; c < n; c++) {
      const known = found.pass[c] + found.fail[c],
        unknown = found.pending[c] + found.error[c];
      if (!known) continue;
      if (exact) {
        low[c] = found.fail[c] / (known + unknown);
        high[c] = (found.fail[c] + unknown) / (known + unknown);
        continue;
      }
      const k = found.rate[c] * worth[c],
        [a, b] = wilson(k, worth[c]);
      low[c] = ((found.fail[c] ? a : 0) * known) / (known + unknown);
      high[c] = ((found.pass[c] ? b : 1) * known + unknown) / (known + unknown);
    }
    found.low = low;
    found.high = high;
  }

  // How many independent runs the runs of each cell are worth: given points are strata, and only
  // their replicates scatter (as `sweepkit.analysis.worth` has it, with its source).
  worths(found, outcome, mask, cell, n, alone) {
    const plain = found.pass.map((p, c) => p + found.fail[c]);
    if (alone || this.worth.kind === "sample") return plain;
    const variance = new Float64Array(n),
      several = new Uint32Array(n),
      scatter = (m, f) => (f + 1) * (m - f + 1) / ((m + 1) * (m + 2)); // prettier-ignore
    if (!this.point) {
      for (let r = 0; r < this.n; r++) {
        if ((mask && !mask[r]) || outcome[r] === SKIPPED) continue;
        several[cell[r]]++;
        if (outcome[r] <= FAILED) variance[cell[r]] += scatter(1, outcome[r]);
      }
    } else {
      const points = this.points(outcome, mask),
        home = this.home(cell);
      for (let p = 0; p < this.n_points; p++) {
        const at = p * 5,
          failed = points[at + FAILED],
          known = points[at + PASSED] + failed;
        if (known + points[at + PENDING] + points[at + ERRORED] === 0) continue;
        several[home[p]]++;
        if (known) variance[home[p]] += known * scatter(known, failed);
      }
    }
    return plain.map((m, c) => {
      const spreads = found.rate[c] * (1 - found.rate[c]),
        apart = (spreads * m * m) / variance[c];
      return several[c] > 1 && apart > m ? apart : m;
    });
  }

  tally(outcome, mask) {
    const one = this.count(outcome, mask, {
      cell: (this.nowhere = this.nowhere || new Uint8Array(this.n)),
      n: 1,
      names: [],
    });
    const known = one.pass[0] + one.fail[0];
    return {
      pass: one.pass[0],
      fail: one.fail[0],
      error: one.error[0],
      pending: one.pending[0],
      rate: known ? one.rate[0] : null,
      low: one.low && known ? one.low[0] : null,
      high: one.high && known ? one.high[0] : null,
    };
  }

  // How runs lie among the stops of a limit, and how many pass all at each.
  bars(k, stops, mask) {
    const r = this.meta.levers[k],
      n = r.stops.length + 1,
      codes = this.levers[k],
      { broken } = this.judge(stops);
    const bars = new Float64Array(n),
      beside = new Float64Array(n),
      stop = stops[k];
    for (let i = 0; i < this.n; i++) {
      if (this.base[i] !== PASSED || (mask && !mask[i])) continue;
      const c = codes[i];
      bars[c]++;
      if (broken[i] === ((r.rising ? c <= stop : c > stop) ? 1 : 0)) beside[c]++;
    }
    const passing = new Float64Array(n - 1);
    let sum = 0;
    if (r.rising) for (let j = n - 1; j > 0; j--) passing[j - 1] = sum += beside[j];
    else for (let j = 0; j < n - 1; j++) passing[j] = sum += beside[j];
    return { bars: { array: bars }, passing: { array: passing } };
  }

  // Mean of an output in each cell, of the runs that have a number.
  mean(name, outcome, mask, { cell, n }) {
    const { levels, codes } = this.outputs.get(name);
    const total = new Float64Array(n),
      number = new Float64Array(n);
    for (let r = 0; r < this.n; r++) {
      if (outcome[r] > FAILED || codes[r] === NONE || (mask && !mask[r])) continue;
      total[cell[r]] += levels[codes[r]];
      number[cell[r]]++;
    }
    const mean = total.map((v, c) => v / number[c]),
      finite = mean.filter(Number.isFinite);
    return {
      mean: { array: mean },
      n: { array: number },
      low: finite.length ? finite.reduce((a, b) => Math.min(a, b)) : null,
      high: finite.length ? finite.reduce((a, b) => Math.max(a, b)) : null,
      units: this.meta.outputs.find(([o]) => o === name)[1],
      name,
      kind: "output",
    };
  }

  // A pair of parameters as a small map: pass, fail, pending and error of each of its cells.
  pair(x, y, outcome, mask) {
    const [p, q] = [x, y].map((name) => this.meta.params.find((one) => one.name === name)),
      [nx, ny] = [p, q].map((one) => (one.ends && one.n > PAIR_BINS ? PAIR_BINS : one.n)),
      [a, b] = [x, y].map((name) => this.codes.get(name));
    const tally = new Float64Array(nx * ny * 4);
    for (let r = 0; r < this.n; r++) {
      if (outcome[r] === SKIPPED || (mask && !mask[r])) continue;
      const i = Math.floor((a[r] * nx) / p.n),
        j = Math.floor((b[r] * ny) / q.n);
      tally[(j * nx + i) * 4 + outcome[r]]++;
    }
    return { x, y, nx, ny, tally: { array: tally } };
  }
}
