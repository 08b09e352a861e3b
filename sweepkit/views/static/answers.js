// Answers to what the explorer's views ask, from the runs and from what Python said at the declared
// limits; what only Python tells says so once a limit has moved.

const MANY_PAIRS = 45;
const PANELS = 4; // bins of a parameter with a map for each
const COARSE = [240, 12, 8]; // bins of an axis, by the number of parameters of multiples

export class Answers {
  constructor(runs, told) {
    this.runs = runs;
    this.told = told;
  }

  declared(state) {
    return this.runs.meta.levers.every((r, k) => r.declared === state.stops[k]);
  }

  give(part, state) {
    if (this[part]) return this[part](state);
    return { why: "" };
  }

  overview(state) {
    const { runs, told } = this,
      { outcome } = runs.judge(state.stops);
    const panels = [state.by, state.by2].filter(Boolean),
      names = [...panels, ...[state.y, state.x].filter(Boolean)],
      sizes = names.map((name) => this.size(name, panels)),
      at = Object.fromEntries(Object.entries(state.at).filter(([name]) => !names.includes(name)));
    const layout = runs.cells(names, sizes),
      selected = runs.mask(state.filters),
      seen = runs.mask(state.filters, at, "map"),
      found = runs.count(outcome, seen, layout);
    const all = { ...runs.tally(outcome, null), basis: told.basis };
    const [kind, , name] = /^(\w+)(:(.*))?$/.exec(state.show)?.slice(1) || ["rate"];
    const cells = Object.fromEntries(
      Object.entries(found).map(([key, array]) => [key, array ? { array } : null]),
    );
    return {
      all: this.as_told(state, all),
      selected: selected ? { ...runs.tally(outcome, selected), basis: told.basis } : null,
      // Rates at moved limits are shares of what has finished, which they are compared with.
      declared:
        told.basis === "in progress"
          ? told.all.fail / (told.all.pass + told.all.fail || 1)
          : told.all.rate,
      progress: told.progress,
      axes: names.map((name, k) => [name, sizes[k]]),
      cells: {
        ...cells,
        there: { array: layout.there },
        basis: { array: new Uint8Array(layout.n) },
      },
      bases: [told.basis],
      value: kind === "output" ? runs.mean(name, outcome, seen, layout) : null,
      levers: runs.meta.levers.map((_, k) => runs.bars(k, state.stops, selected)),
    };
  }

  // Values of a parameter on an axis, or with a map for each: bins are fewer beside multiples.
  size(name, panels) {
    const p = this.runs.meta.params.find((one) => one.name === name);
    if (!p.ends) return p.n;
    return Math.min(p.n, panels.includes(name) ? PANELS : COARSE[panels.length]);
  }

  // At the declared limits Python's own interval, which it tells on every basis.
  as_told(state, all) {
    const { rate, low, high } = this.told.all,
      bounds = this.told.basis === "in progress" ? { rate, low, high } : { low, high };
    return this.declared(state) && !this.told.sampled ? { ...all, ...bounds } : all;
  }

  drags() {
    return {};
  }

  held(state) {
    const { runs, told } = this,
      { outcome } = runs.judge(state.stops),
      mask = runs.mask(state.filters),
      same = this.declared(state) && !state.filters.length;
    const strips = told.order.map((name) => {
      const p = runs.meta.params.find((one) => one.name === name),
        layout = { cell: runs.codes.get(name), n: p.n, names: [name] };
      const mine = runs.count(outcome, mask, layout),
        whole = mask ? runs.count(outcome, null, layout) : mine;
      const list = (array) => Array.from(array, (v) => (Number.isNaN(v) ? null : v));
      const before = same && !told.sampled ? told.strips[name] : null;
      return {
        name,
        rate: before ? before.rate : list(mine.rate),
        low: before ? before.low : mine.low ? list(mine.low) : p.labels.map(() => null),
        high: before ? before.high : mine.high ? list(mine.high) : p.labels.map(() => null),
        n: mine.pass.map((v, i) => v + mine.fail[i]),
        fail: mine.fail,
        error: mine.error,
        all: before ? before.rate : list(whole.rate),
        passing: [],
        ...(same ? told.shares[name] : { S1: null, ST: null, KS: null }),
      };
    });
    const why = same ? told.why.held : "How much each parameter explains is told at the declared limits.";
    return { strips, why };
  }

  pairs(state) {
    const { runs, told } = this,
      several = told.order.filter(
        (name) => runs.meta.params.find((p) => p.name === name).role !== "replicate",
      );
    if (several.length < 2)
      return {
        pairs: [],
        why: "There are fewer than two parameters with several values, so there is no pair.",
      };
    const { outcome } = runs.judge(state.stops),
      mask = runs.mask(state.filters),
      same = this.declared(state) && !state.filters.length;
    const rank = (pair) => told.pairs.findIndex(([a, b]) => a === pair[0] && b === pair[1]);
    const all = runs.meta.params
      .filter((p) => several.includes(p.name))
      .slice(0, 12)
      .flatMap((p, i, list) => list.slice(i + 1).map((q) => [p.name, q.name]))
      .sort((a, b) => (rank(a) + 1 || 1e9) - (rank(b) + 1 || 1e9));
    return {
      pairs: all.slice(0, MANY_PAIRS).map(([x, y]) => ({
        ...runs.pair(x, y, outcome, mask),
        excess: same ? (told.pairs[rank([x, y])]?.[2] ?? null) : null,
      })),
      note: all.length > MANY_PAIRS ? `The first ${MANY_PAIRS} of ${all.length} pairs.` : "",
      why: same ? told.why.pairs : "Excess is told at the declared limits, and so is the order.",
    };
  }

  // Both stay as they are at the declared limits, and say so once a limit has moved.
  sure(state) {
    const { sure } = this.told;
    if (sure.why || this.declared(state)) return sure;
    return { ...sure, order: `At the declared limits; ${sure.order}` };
  }

  regions(state) {
    const { regions } = this.told;
    if (this.declared(state)) return regions;
    return { ...regions, why: "Boxes are those at the declared limits." };
  }

  distribution(state) {
    const { distributions } = this.told,
      choices = Object.keys(distributions.of);
    if (!choices.length) return { why: distributions.why, choices };
    const output = choices.includes(state.output) ? state.output : choices[0];
    return { choices, ...distributions.of[output] };
  }

  first() {
    return { run: null };
  }
}
