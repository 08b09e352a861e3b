// Kinds of failures and islands of them, as tables whose rows filter.
import { count, figure, h, plural, status, swap } from "./draw.js";

export function kindsView(app) {
  const note = h("span", { class: "xs muted" }),
    body = h("div", { class: "table" });
  const el = h(
    "section",
    { class: "card kinds-card", data: { view: "kinds" } },
    h("div", { class: "head" }, h("h2", {}, "Kinds"), note),
    body,
  );

  function draw() {
    const data = app.part("kinds");
    if (!data) {
      swap(body, h("p", { class: "empty" }, "Grouping …"));
      return;
    }
    if (!data.rows?.length) {
      swap(body, h("p", { class: "empty" }, data.why));
      note.textContent = "";
      return;
    }
    const total = data.rows.reduce((a, r) => a + r.selected, 0),
      most = Math.max(1, ...data.rows.map((r) => r.selected));
    note.textContent = `${plural(data.total, "kind")} among ${plural(total, "run")}`;
    const picked = app.state.filters.find((f) => f.src === "kind");
    rows(body, ["", "What happened", "Runs", "", "Most over-represented"], data.rows, (r) => {
      const bad = r.family === "requirement" ? "fail" : "error",
        on = picked && JSON.stringify(picked.tests[0].kind) === JSON.stringify(r.key);
      return {
        key: r.key.join("|"),
        on,
        cells: [
          status(bad),
          h(
            "span",
            { title: [r.text, r.frame, r.example].filter(Boolean).join("\n") },
            h("span", { class: "cut2" }, r.text),
            r.frame ? h("span", { class: "xs muted frame" }, r.frame) : null,
          ),
          h("b", {}, count(r.selected)),
          h("i", {
            class: "sh",
            style: {
              width: `${Math.max(r.selected ? 2 : 0, (48 * r.selected) / most)}px`,
              background: `var(--sk-${bad})`,
            },
          }),
          r.where
            ? [
                r.where,
                h("span", { class: "muted" }, ` ×${r.lift === null ? "" : r.lift.toFixed(1)}`),
              ]
            : h("span", { class: "muted" }, "nowhere"),
        ],
        pick: () =>
          on
            ? app.unfilter((f) => f.src === "kind")
            : app.filter({ src: "kind", text: r.text, tests: [{ kind: r.key }] }, { open: true }),
      };
    });
  }
  return { el, draw, parts: ["kinds"], lazy: true };
}

export function islandsView(app) {
  const note = h("span", { class: "xs muted" }),
    body = h("div", { class: "table" });
  const el = h(
    "section",
    { class: "card wide islands-card", data: { view: "islands" } },
    h("div", { class: "head" }, h("h2", {}, "Islands"), note),
    body,
  );

  function draw() {
    const data = app.part("islands");
    if (!data) {
      swap(body, h("p", { class: "empty" }, "Connecting …"));
      return;
    }
    if (!data.rows?.length) {
      swap(body, h("p", { class: "empty" }, data.why));
      note.textContent = "";
      return;
    }
    note.textContent = `${plural(data.total, "region")} of neighbours that fail`;
    const picked = app.state.filters.find((f) => f.src === "island");
    rows(body, ["Where", "Points", "Of failures"], data.rows.slice(0, 12), (r) => {
      const on = picked && picked.tests[0].island === r.island;
      return {
        key: String(r.island),
        on,
        cells: [
          h(
            "span",
            { title: `${r.bounds}${r.touches ? `\nreaches ${r.touches}` : ""}` },
            h("span", { class: "cut2" }, r.bounds),
          ),
          h("b", {}, count(r.size)),
          `${figure(100 * (r.share || 0), 3)} %`,
        ],
        pick: () =>
          on
            ? app.unfilter((f) => f.src === "island")
            : app.filter(
                { src: "island", text: r.bounds, tests: [{ island: r.island }] },
                { open: true },
              ),
      };
    });
  }
  return { el, draw, parts: ["islands"], lazy: true };
}

function rows(body, heads, data, make) {
  const focus = body.getRootNode().activeElement?.dataset?.row;
  const made = data.map(make),
    number = (k) =>
      typeof data[0] === "object" && /Runs|Points|failures/.test(heads[k]) ? "r" : null;
  swap(
    body,
    h(
      "table",
      {},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map((t, k) => h("th", { class: number(k) }, t)),
        ),
      ),
      h(
        "tbody",
        {},
        made.map((m) => {
          const row = h(
            "tr",
            {
              tabindex: 0,
              role: "button",
              "aria-pressed": String(Boolean(m.on)),
              data: { row: m.key, lmSuppressShortcuts: "true" },
              onclick: m.pick,
              onkeydown: (e) => {
                if (e.key === "Enter" || e.key === " ") {
                  e.preventDefault();
                  m.pick();
                }
              },
            },
            m.cells.map((c, k) => h("td", { class: number(k) }, c)),
          );
          return row;
        }),
      ),
    ),
  );
  if (focus !== undefined)
    body.querySelector(`[data-row="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
}
