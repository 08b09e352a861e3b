// What the failure map shows: its axes, what colours it, and where the other parameters stand.
import { h, swap, united } from "./draw.js";

const AXES = ["x", "y", "by", "by2"];

export function mapChoices(app) {
  const one = h("button", { type: "button", onclick: () => app.set({ by: "", by2: "" }) }, "One map");
  const many = h(
    "button",
    { type: "button", onclick: () => app.set({ by: firstFree() }) },
    "Small multiples",
  );
  const selects = h("span", { class: "ctl" }),
    about = h("span", { class: "ctl about" }),
    sliders = h("div", { class: "sliders" });
  const layouts = h("span", { class: "seg", role: "group", "aria-label": "Layout" }, one, many),
    axes = h("div", { class: "row2" }, selects, about);
  let madeFor = "";

  const several = () => app.meta.params.filter((p) => p.n > 1);
  const free = () => several().filter((p) => !AXES.some((axis) => app.state[axis] === p.name));
  const firstFree = () => free().find((p) => p.n <= 12 || p.ends)?.name || "";

  function choose(axis, name) {
    const next = Object.fromEntries(AXES.map((one) => [one, app.state[one] || ""]));
    for (const other of AXES)
      if (other !== axis && next[other] === name && name) next[other] = next[axis];
    next[axis] = name;
    if (!next.x) [next.x, next.y] = [next.y, ""];
    if (!next.by) [next.by, next.by2] = [next.by2, ""];
    app.set(next);
  }

  function controls() {
    const { x, y, by, by2, show } = app.state,
      key = JSON.stringify([
        x,
        y,
        by,
        by2,
        show,
        app.meta.params.map((p) => [p.name, p.n]),
        app.meta.outputs,
      ]);
    if (key === madeFor) return;
    madeFor = key;
    const names = several().map((p) => p.name),
      focus = axes.getRootNode().activeElement,
      kept = [axes, sliders].some((part) => part.contains(focus))
        ? focus.dataset.axis || focus.dataset.slider
        : null;
    const select = (axis, value, none, label) =>
      h(
        "select",
        {
          class: "btn",
          "aria-label": label,
          data: { axis },
          onchange: (e) => choose(axis, e.target.value),
        },
        none ? h("option", { value: "" }, "none") : null,
        (names.includes(value) || !value ? names : [value, ...names]).map((n) =>
          h("option", { value: n, selected: n === value }, n),
        ),
      );
    const shows = [
      ["rate", "failure rate"],
      ["status", "status"],
      ...app.meta.levers
        .filter((r) => r.movable)
        .map((r) => [`margin:${r.name}`, `margin of ${r.what}`]),
      ...app.meta.outputs.map(([n]) => [`output:${n}`, `mean ${n}`]),
    ];
    swap(
      selects,
      h("label", {}, "x ", select("x", x, false, "x axis")),
      h("label", {}, "y ", select("y", y, true, "y axis")),
      by ? h("label", {}, "by ", select("by", by, true, "multiples by")) : null,
      by && (by2 || free().length)
        ? h("label", {}, "and ", select("by2", by2 || "", true, "and by"))
        : null,
      h(
        "label",
        {},
        "colour ",
        h(
          "select",
          {
            class: "btn",
            "aria-label": "colour",
            data: { axis: "show" },
            onchange: (e) => app.set({ show: e.target.value }),
          },
          shows.map(([v, t]) => h("option", { value: v, selected: v === show }, t)),
        ),
      ),
    );
    one.setAttribute("aria-pressed", String(!by));
    many.setAttribute("aria-pressed", String(Boolean(by)));
    many.disabled = !by && !firstFree();
    const rest = several().filter((p) => ![x, y, by, by2].includes(p.name));
    swap(
      sliders,
      rest.map((p) => {
        const said = h("span", { class: "said" });
        const input = h("input", {
          type: "range",
          min: -1,
          max: p.n - 1,
          step: 1,
          data: { slider: p.name, lmSuppressShortcuts: "true" },
          "aria-label": `${p.name}: left end averages over all values`,
          oninput: () => {
            app.dragging = true;
            slide(p, Number(input.value));
          },
          onchange: () => {
            app.dragging = false;
            app.draw();
          },
        });
        return h(
          "label",
          { class: "slice", data: { name: p.name } },
          h("span", { class: "nm" }, p.name),
          input,
          said,
        );
      }),
    );
    if (!kept) return;
    const again =
      axes.querySelector(`[data-axis="${CSS.escape(kept)}"]`) ||
      sliders.querySelector(`[data-slider="${CSS.escape(kept)}"]`);
    again?.focus({ preventScroll: true });
  }

  function slide(p, code) {
    const at = { ...app.state.at };
    if (code < 0) delete at[p.name];
    else at[p.name] = code;
    app.set({ at }, { drag: true });
  }

  function slices() {
    const over = [];
    for (const node of sliders.children) {
      const p = app.param(node.dataset.name),
        code = app.state.at[p.name] ?? -1,
        input = node.querySelector("input");
      if (Number(input.value) !== code) input.value = code;
      const text = code < 0 ? "averaged" : united((p.full || p.labels)[code], p.units);
      node.querySelector(".said").textContent = text;
      input.setAttribute("aria-valuetext", text);
      if (code < 0) over.push(p.name);
    }
    const text = over.length ? `averaged over ${over.join(", ")}` : "";
    about.textContent = text;
    about.title = text;
  }

  function draw() {
    controls();
    slices();
  }

  return { layouts, axes, sliders, draw };
}
