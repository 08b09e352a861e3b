// Requirements as sliders: a limit filters nothing, it changes what fails everywhere at once.
import { count, figure, h, s, swap, united, unpack } from "./draw.js";

const BARS = 50;
const SIGNS = { ">=": "≥", "<=": "≤", ">": ">", "<": "<" };

export function requirementsView(app) {
  const note = h("span", { class: "s muted note" });
  const reset = h(
    "button",
    {
      class: "btn",
      type: "button",
      data: { name: "reset" },
      onclick: () => app.set({ stops: app.meta.levers.map((r) => r.declared) }),
    },
    "Back to declared",
  );
  const columns = h("div", { class: "cols" });
  const el = h(
    "section",
    { class: "card wide req-card", data: { view: "requirements" } },
    h("div", { class: "head" }, h("h2", {}, "Requirements"), note, reset),
    columns,
  );
  let rows = [];
  let made = null;

  function build() {
    made = app.meta.levers;
    if (!made.length) {
      swap(
        columns,
        h(
          "p",
          { class: "empty" },
          "No requirement says which runs fail. Give some: ",
          h("code", {}, "sk.explore(ds, requirements=['steps >= 500'])"),
          ".",
        ),
      );
      rows = [];
      return;
    }
    columns.style.setProperty("--n", Math.min(3, made.length));
    rows = made.map((r, k) => {
      const limit = h("span", { class: "lim" }),
        bars = s("svg", {
          width: "100%",
          height: 48,
          viewBox: "0 0 1000 48",
          preserveAspectRatio: "none",
          "aria-hidden": "true",
        });
      const flips = h("div", { class: "flip", "aria-live": "off" }),
        scale = h("div", { class: "scale" });
      const last = r.stops.length - 1,
        middle = r.stops[Math.round(last / 2)];
      const slider = h("input", {
        type: "range",
        min: 0,
        max: last,
        step: 1,
        data: { lever: r.name, lmSuppressShortcuts: "true" },
        "aria-label": `limit of ${r.what}${r.units ? `, ${r.units}` : ""}`,
        oninput: () => {
          app.dragging = true;
          move(k, Number(slider.value));
        },
        onchange: () => {
          app.dragging = false;
          app.draw();
        },
        onpointerup: () => {
          app.dragging = false;
          app.draw();
        },
      });
      slider.disabled = !r.movable;
      if (r.movable)
        swap(
          scale,
          h("span", {}, figure(r.stops[0])),
          h("span", {}, figure(middle)),
          h("span", {}, united(figure(r.stops[last]), r.units)),
        );
      const node = h(
        "div",
        { class: "req", data: { lever: r.name } },
        h(
          "div",
          { class: "top-line" },
          h(
            "span",
            { class: "name", title: r.text },
            h("b", {}, r.title),
            " ",
            r.movable
              ? h(
                  "span",
                  { class: "xs muted" },
                  `declared ${united(figure(r.stops[r.declared]), r.units)}`,
                )
              : null,
          ),
          limit,
        ),
        h("div", { class: "slot" }, bars, r.movable ? slider : null),
        scale,
        flips,
      );
      return { r, k, limit, bars, slider, flips, node };
    });
    swap(
      columns,
      rows.map((row) => row.node),
    );
  }

  function move(k, stop) {
    const stops = app.state.stops.slice();
    stops[k] = stop;
    app.set({ stops }, { drag: true });
  }

  function draw() {
    if (made !== app.meta.levers) {
      const same =
        made &&
        made.length === app.meta.levers.length &&
        made.every(
          (r, k) =>
            r.name === app.meta.levers[k].name &&
            r.stops.length === app.meta.levers[k].stops.length &&
            r.stops[0] === app.meta.levers[k].stops[0],
        );
      if (same) {
        made = app.meta.levers;
        rows.forEach((row, k) => {
          row.r = made[k];
        });
      } else build();
    }
    const data = app.part("overview");
    let moved = 0;
    for (const row of rows) {
      const { r, k } = row,
        stop = app.state.stops[k];
      const counts = unpack(data.levers[k].bars),
        passing = unpack(data.levers[k].passing);
      if (stop !== r.declared) moved++;
      drawBars(row, counts, stop);
      row.limit.textContent = r.movable
        ? `${SIGNS[r.op]} ${united(figure(r.stops[stop]), r.units)}`
        : "";
      if (document.activeElement !== row.slider || Number(row.slider.value) !== stop)
        row.slider.value = stop;
      row.slider.setAttribute("aria-valuetext", row.limit.textContent);
      swap(row.flips, flipText(r, k, stop, passing, data));
    }
    note.textContent = rows.length
      ? `bars: runs per value, square-root height${moved ? `; ${moved} of ${rows.length} limits moved` : ""}`
      : "";
    reset.disabled = !moved;
  }

  function drawBars(row, counts, stop) {
    const { r } = row,
      n = r.stops.length,
      kinds = r.movable ? Math.min(BARS, n + 1) : 2,
      width = 1000 / kinds;
    const high = new Float64Array(kinds),
      low = new Float64Array(kinds);
    for (let code = 0; code <= n; code++) {
      const b = Math.min(kinds - 1, Math.floor((code * kinds) / (n + 1)));
      (r.rising ? code > stop : code <= stop)
        ? (high[b] += counts[code])
        : (low[b] += counts[code]);
    }
    let most = 1;
    for (let b = 0; b < kinds; b++) most = Math.max(most, high[b] + low[b]);
    const bars = [];
    for (let b = 0; b < kinds; b++) {
      const total = high[b] + low[b];
      if (!total) continue;
      const tall = Math.max(2, (Math.sqrt(total) / Math.sqrt(most)) * 44),
        pass = (tall * high[b]) / total;
      const x = b * width + width * 0.08,
        w = width * 0.84;
      if (low[b])
        bars.push(
          s("rect", { x, y: 48 - tall, width: w, height: tall - pass, fill: "var(--sk-fail)" }),
        );
      if (high[b])
        bars.push(s("rect", { x, y: 48 - pass, width: w, height: pass, fill: "var(--sk-pass)" }));
    }
    if (r.movable) {
      const at = (k) => (n > 1 ? (k / (n - 1)) * 1000 : 500);
      if (stop !== r.declared)
        bars.push(
          s("path", {
            d: `M${at(r.declared)} 0V48`,
            stroke: "var(--sk-edge)",
            "stroke-dasharray": "3 3",
            "vector-effect": "non-scaling-stroke",
          }),
        );
      bars.push(
        s("path", {
          d: `M${at(stop)} 0V48`,
          stroke: "var(--sk-ink)",
          "stroke-width": 1.5,
          "vector-effect": "non-scaling-stroke",
        }),
      );
    }
    swap(row.bars, bars);
  }

  function flipText(r, k, stop, passing, data) {
    const tally = data.selected || data.all;
    if (!r.movable)
      return [
        `no limit to move; ${count(passing[0])} of ${count(tally.pass + tally.fail)} runs pass all`,
      ];
    const now = passing[stop],
      then = passing[r.declared];
    if (stop !== r.declared) {
      const n = Math.abs(now - then);
      return [
        h("b", {}, n === 1 ? "1 run flips" : `${count(n)} runs flip`),
        n ? `, to ${now < then ? "fail" : "pass"}` : "",
      ];
    }
    const step = r.rising ? 1 : -1; // towards the stricter side
    for (let j = stop + step; j >= 0 && j < passing.length; j += step) {
      if (passing[j] !== now)
        return [
          `none flipped; first at ${united(figure(r.stops[j]), r.units)}: `,
          h("b", {}, count(Math.abs(passing[j] - now))),
        ];
    }
    for (let j = stop - step; j >= 0 && j < passing.length; j -= step) {
      if (passing[j] !== now)
        return [
          `none flipped; first at ${united(figure(r.stops[j]), r.units)}: `,
          h("b", {}, count(Math.abs(passing[j] - now))),
        ];
    }
    return ["none flipped; no limit would flip any"];
  }
  return { el, draw, moves: true };
}
