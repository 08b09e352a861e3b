// The map's cells after one move, from the cubes that Python counted for it.
const MOVED = { low: null, high: null, exact: true, moved: true }; // intervals are Python's alone
const COUNTED = ["pass", "fail", "pending", "error"]; // as a slider's cube has them, last

// With one limit at another stop; of the cube, which has the runs that pass at each.
export function limitMoved(base, cube, stops, stop) {
  const pass = Float64Array.from(base.pass, (_, i) => cube[i * stops + stop]),
    fail = pass.map((p, i) => base.pass[i] + base.fail[i] - p);
  return rated({ ...base, ...MOVED, pass, fail });
}

// With one slider at another value, or at none: then all of its values are counted.
export function sliderMoved(base, cube, size, at) {
  const moved = { ...base, ...MOVED },
    [from, to] = at === null ? [0, size] : [at, at + 1];
  COUNTED.forEach((kind, k) => {
    moved[kind] = new Float64Array(base.pass.length);
    for (let i = 0; i < moved[kind].length; i++)
      for (let v = from; v < to; v++) moved[kind][i] += cube[(i * size + v) * 4 + k];
  });
  return rated(moved);
}

function rated(cells) {
  const { pass, fail } = cells;
  return { ...cells, rate: Float64Array.from(pass, (p, i) => fail[i] / (p + fail[i])) };
}
