// The filters in force, each with a button that takes it away.
import { h } from "./draw.js";

export function filterChips(app) {
  const { filters } = app.state;
  return filters.map((f, k) =>
    h(
      "span",
      { class: "chip", data: { k, src: f.src } },
      h("span", { class: "src" }, f.src),
      h("span", { class: "txt", title: f.text }, f.text),
      h(
        "button",
        {
          type: "button",
          "aria-label": `Remove ${f.text}`,
          onclick: () => app.set({ filters: filters.filter((_, j) => j !== k) }),
        },
        "×",
      ),
    ),
  );
}
