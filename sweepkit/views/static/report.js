// A report in the browser: the explorer's views in the places of a page, answered from its runs.
import { App } from "./app.js";
import { filterChips } from "./chips.js";
import { Answers } from "./answers.js";
import { Runs } from "./counting.js";
import { count, h, percent, plural, swap, united, figure } from "./draw.js";
import { requirementsView } from "./requirements.js";
import { mapView } from "./map.js";
import { heldView } from "./held.js";
import { pairsView } from "./pairs.js";
import { regionsView } from "./regions.js";
import { distributionView } from "./distribution.js";
import { sureView } from "./sure.js";

const VIEWS = {
  requirements: requirementsView,
  map: mapView,
  held: heldView,
  pairs: pairsView,
  regions: regionsView,
  distribution: distributionView,
  sure: sureView,
};

// The figures at the limits in force, and the filters, which stay in sight.
function nowView(app) {
  const said = h("span", { class: "figures", "aria-live": "polite" }),
    list = h("div", { class: "list" });
  const button = (text, name, onclick) =>
    h("button", { class: "btn", type: "button", data: { name }, onclick }, text);
  const clear = button("Clear filters", "clear", () => app.set({ filters: [] }));
  const back = button("Declared limits", "declared", () =>
    app.set({ stops: app.meta.levers.map((r) => r.declared) }),
  );
  const el = h(
    "div",
    { class: "chips", role: "region", "aria-label": "At these limits" },
    h("div", { class: "wrap" }, said, list, h("span", { class: "acts" }, back, clear)),
  );

  function words(tally, known) {
    const what = app.state.filters.length ? "selected run" : "finished run";
    if (!known) return [`no ${what} is finished`];
    if (!app.meta.levers.length) return [h("b", {}, count(known)), ` ${what}${known === 1 ? "" : "s"}`];
    const width = tally.high - tally.low;
    // While a sweep runs, rate and bounds are estimates for all its runs.
    const going = tally.basis === "in progress" && Math.abs(tally.rate - tally.fail / known) > 1e-9;
    return [
      h("b", { data: { figure: "rate" } }, `${percent(tally.rate, 1)} %`),
      going ? " of all runs fail, estimated from " : " of ",
      h("span", { data: { figure: "known" } }, count(known)),
      ` ${what}${known === 1 ? "" : "s"}${going ? " " : " fail "}`,
      tally.low === null
        ? h("span", { class: "muted" }, "(interval at the declared limits only)")
        : h(
            "span",
            { class: "muted", data: { figure: "interval" } },
            width < 1e-9 ? "(exact)" : `(${percent(tally.low, 1)} to ${percent(tally.high, 1)} %)`,
          ),
    ];
  }

  function draw() {
    const { filters, stops } = app.state,
      tally = app.tally(),
      known = tally.pass + tally.fail,
      moved = app.meta.levers.filter((r, k) => r.declared !== stops[k]).length;
    const before = app.part("overview").declared,
      delta = known && before !== null ? tally.rate - before : 0;
    swap(
      said,
      ...words(tally, known),
      h(
        "span",
        { class: "muted delta" },
        !moved || filters.length
          ? moved
            ? ` ${plural(moved, "limit")} moved`
            : ""
          : ` ${delta >= 0 ? "+" : "−"}${percent(Math.abs(delta), 1)} points against the declared limits`,
      ),
    );
    swap(list, filterChips(app));
    back.disabled = !moved;
    clear.disabled = !filters.length;
  }
  return { el, draw, moves: true };
}

// Which limits a printed figure is of.
function printedView(app) {
  const el = h("p", { class: "note-line printed" });
  function draw() {
    const moved = app.meta.levers.filter((r, k) => r.declared !== app.state.stops[k]);
    const limits = moved.map(
      (r) =>
        `${r.what} ${r.op} ${united(figure(r.stops[app.state.stops[app.meta.levers.indexOf(r)]]), r.units)}`,
    );
    el.textContent = limits.length
      ? `Figures below at moved limits: ${limits.join("; ")}.`
      : "Figures below at the declared limits.";
  }
  return { el, draw, moves: true };
}

function mount(app, root, names) {
  app.views = [];
  for (const slot of root.querySelectorAll("[data-slot]")) {
    const name = slot.dataset.slot;
    if (name === "now") swap(slot, app.add(nowView(app)), app.add(printedView(app)));
    else if (names.includes(name)) swap(slot, app.add(VIEWS[name](app)));
  }
}

// Answers come from the runs at hand, at once; strips follow a moving limit as the map does.
function model(answers) {
  return {
    get: () => null,
    on() {},
    off() {},
    app: null,
    send(message) {
      for (const part of message.want || []) this.answer(part, message.key);
      if ((message.want || []).includes("overview") && this.app.meta.levers.length)
        this.answer("held", JSON.stringify([["held", this.app.partKey("held")]]));
    },
    answer(part, key) {
      this.app.take({ part, key, data: answers.give(part, this.app.state) });
    },
  };
}

function follow_theme(root, app) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set = (theme) => {
    root.dataset.theme = theme;
    app.draw();
  };
  const own = () => set(dark.matches ? "dark" : "light");
  dark.addEventListener("change", own);
  own();
  return own;
}

// On paper: light, as wide as the sheet, everything unfolded and drawn.
function follow_print(root, app, own) {
  const all = () => {
    app.widths.clear();
    for (const view of app.views) {
      if (view.seen === false) view.seen = true;
      for (const part of view.parts || [])
        if (!app.part(part)) app.model.answer(part, JSON.stringify([[part, app.partKey(part)]]));
      view.draw();
    }
  };
  let folded = [];
  const before = () => {
    if (root.classList.contains("on-paper")) return;
    root.classList.add("on-paper");
    root.dataset.theme = "light";
    folded = [...root.querySelectorAll("details:not([open])")];
    for (const node of folded) node.open = true;
    all();
  };
  const after = () => {
    root.classList.remove("on-paper");
    for (const node of folded) node.open = false;
    own();
    all();
  };
  addEventListener("beforeprint", before);
  addEventListener("afterprint", after);
  matchMedia("print").addEventListener("change", (e) => (e.matches ? before() : after()));
}

async function begin() {
  const root = document.querySelector(".sk-report"),
    data = JSON.parse(document.getElementById("sk-data").textContent);
  const runs = await Runs.of(data.columns, data.meta),
    answers = new Answers(runs, data.told),
    own = model(answers),
    app = new App(own, root);
  own.app = app;
  app.build = () => mount(app, root, data.views);
  app.hello({ meta: data.meta, state: data.state, overview: answers.overview(data.state) });
  follow_print(root, app, follow_theme(root, app));
  let width = root.clientWidth;
  new ResizeObserver(() => {
    if (root.clientWidth === width || root.classList.contains("on-paper")) return;
    width = root.clientWidth;
    app.widths.clear();
    app.draw();
  }).observe(root);
  root.dataset.ready = "true";
}

begin().catch((error) => {
  const old = typeof DecompressionStream === "undefined" ? " (this browser is too old)" : "";
  for (const node of document.querySelectorAll(".sk-report .waits"))
    node.textContent = `This figure could not be drawn${old}: ${error.message}`;
  throw error;
});
