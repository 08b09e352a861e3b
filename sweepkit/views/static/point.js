// The point of a run: its values, and what came of the runs that are nearest to it.
import { count, glyph, h, percent, short, united } from "./draw.js";

export function pointTable(app, data) {
  return [
    h(
      "h3",
      {},
      "Parameters",
      data.point.some((p) => p.alternatives.length)
        ? h("span", {}, "status if only this value changed")
        : null,
    ),
    h(
      "table",
      { class: "params" },
      data.point.map((p) =>
        h(
          "tr",
          {},
          h("td", { title: p.role }, short(p.name, 16)),
          h("td", { class: "r", title: p.value }, short(p.value, 14)),
          h("td", { class: "muted" }, p.units),
          h(
            "td",
            {},
            h(
              "span",
              { class: "alt" },
              p.alternatives.map((a) => other(app, p, a, data.run)),
            ),
          ),
        ),
      ),
    ),
  ];
}

// Where no other run differs in one parameter alone: the nearest ones.
export function nearestRuns(app, data) {
  if (!data.around?.length) return null;
  return [
    h("h3", {}, "Nearest runs", h("span", {}, "mean distance, % of the range")),
    h(
      "div",
      { class: "around" },
      data.around.map((a) => {
        const text = `run ${count(a.run)}, ${percent(a.away)} % away: ${a.outcome}`;
        return h(
          "button",
          {
            type: "button",
            title: text,
            "aria-label": text,
            data: { f: `around-${a.run}` },
            onclick: () => app.open(a.run),
          },
          glyph(a.outcome, 13),
          h("span", { class: "xs" }, percent(a.away)),
        );
      }),
    ),
  ];
}

function other(app, p, a, run) {
  const text = `${p.name} ${united(a.label, p.units)}: ${a.outcome}`,
    me = a.run === run;
  return h(
    "button",
    {
      type: "button",
      class: me ? "me" : null,
      disabled: me,
      title: text,
      "aria-label": text,
      data: { f: `${p.name}-${a.label}` },
      onclick: () => app.open(a.run),
    },
    glyph(a.outcome, 13),
  );
}
