// The run: what it was given, what became of it, its log and traceback, and what would make it pass.
import {
  VERBS,
  count,
  figure,
  glyph,
  h,
  plural,
  s,
  short,
  status,
  swap,
  united,
} from "./draw.js";
import { nearestRuns, pointTable } from "./point.js";
import { traceKey, tracePlot } from "./trace.js";

export function runView(app) {
  const el = h("aside", { class: "card run-card", data: { view: "run" }, "aria-label": "The run" });
  const opened = { log: false, error: null };
  let replayed = null;

  function draw() {
    const { run } = app.state,
      data = app.part("run");
    if (run !== null && data?.why) {
      swap(
        el,
        h("div", { class: "head" }, h("h2", {}, `Run ${count(run)}`)),
        h("p", { class: "note" }, data.why),
      );
      return;
    }
    if (run === null || !data || !("run" in data)) {
      const outcome = app.part("overview"),
        any = (outcome.selected || outcome.all).fail + (outcome.selected || outcome.all).error;
      swap(
        el,
        h("div", { class: "head" }, h("h2", {}, "No run open")),
        h(
          "p",
          { class: "note" },
          any
            ? "Click a cell, a line or a kind. The first failing run of what you clicked opens here."
            : "No run fails. Click a cell to open one of its runs.",
        ),
      );
      return;
    }
    if (data.run !== run) return; // its record is under way
    const focus = el.getRootNode().activeElement,
      kept = el.contains(focus) ? focus.dataset.f : null,
      scroll = el.scrollTop;
    if (replayed && replayed.run !== run) replayed = null;
    const again = app.part("replay");
    if (again && again !== replayed?.data && again.run === run) replayed = { run, data: again };
    swap(
      el,
      top(data),
      verdict(data),
      h(
        "div",
        { class: data.traces.length ? "rbody" : "rbody plain" },
        h("div", {}, pointTable(app, data), nearestRuns(app, data), margins(data), outputs(data)),
        h("div", {}, traces(data)),
        h("div", {}, texts(data), facts(data)),
        h("div", {}, actions(data), nearest(data)),
      ),
    );
    el.scrollTop = scroll;
    if (kept) el.querySelector(`[data-f="${CSS.escape(kept)}"]`)?.focus({ preventScroll: true });
  }

  function top(data) {
    const words = {
      pass: "passing",
      fail: "failing",
      error: "erring",
      pending: "pending",
      skipped: "skipped",
    }[data.outcome];
    const place = data.place
      ? `${count(data.place)} of ${count(data.of)} ${words}`
      : "outside the selection";
    const go = (run, name, sign) =>
      h(
        "button",
        {
          class: "btn slim",
          type: "button",
          data: { f: name },
          "aria-label": `${name} run`,
          disabled: run === null,
          onclick: () => app.open(run),
        },
        sign,
      );
    return h(
      "div",
      { class: "head" },
      h("h2", { class: "title" }, `Run ${count(data.run)}`),
      h("span", { class: "xs muted place" }, place),
      go(data.before, "previous", "‹"),
      go(data.after, "next", "›"),
    );
  }

  function verdict(data) {
    const broken = data.margins.filter((m) => !m.holds).map((m) => m.name);
    let text =
      data.outcome === "pass"
        ? app.meta.levers.length
          ? "all requirements hold"
          : "no requirement says whether it passes"
        : data.outcome === "fail"
          ? `breaks ${broken.join(", ")}`
          : data.outcome === "error"
            ? data.status
            : "";
    if (data.outcome === "error" && data.error)
      text = `${data.status}: ${data.error.split(":")[0]}`;
    return h(
      "div",
      { class: `verdict is-${data.outcome}` },
      data.outcome === "pass" && !app.meta.levers.length
        ? h("b", {}, "finished")
        : status(data.outcome, h("b", {}, VERBS[data.outcome])),
      h("span", { class: "s muted", title: text }, short(text, 64)),
    );
  }

  function margins(data) {
    if (!app.meta.levers.length) return null;
    if (!data.margins.length)
      return [
        h("h3", {}, "Margins"),
        h(
          "p",
          { class: "note" },
          data.outcome === "pending" ? "No outputs yet." : "No outputs: the run did not finish.",
        ),
      ];
    return [
      h("h3", {}, "Margins", h("span", {}, "bar: share of the limit, limit at the middle")),
      data.margins.map((m) => {
        const kind = m.holds ? "pass" : "fail",
          w = m.share === null ? 0 : Math.min(1, Math.abs(m.share)) * 50;
        const bar = m.movable
          ? s(
              "svg",
              {
                width: "100%",
                height: 14,
                viewBox: "0 0 100 14",
                preserveAspectRatio: "none",
                "aria-hidden": "true",
              },
              s("rect", { width: 100, height: 14, fill: "var(--sk-sunk)" }),
              s("rect", {
                x: (m.away ?? 0) >= 0 ? 50 : 50 - w,
                y: 3,
                width: Math.max(m.share === null ? 0 : 1, w),
                height: 8,
                fill: `var(--sk-${kind})`,
              }),
              s("path", {
                d: "M50 0V14",
                stroke: "var(--sk-ink)",
                "stroke-width": 1.5,
                "vector-effect": "non-scaling-stroke",
              }),
            )
          : h("span");
        const text = !m.movable
          ? m.holds
            ? "holds"
            : "does not hold"
          : m.away === null
            ? "no number"
            : `${m.away >= 0 ? "+" : "−"}${united(figure(Math.abs(m.away), 3), m.units)}`;
        return h(
          "div",
          {
            class: "mg",
            title: m.movable
              ? `${m.what} is ${figure(m.value)}, limit ${m.op} ${figure(m.limit)}`
              : m.what,
          },
          h("span", { class: "cut" }, m.name),
          bar,
          h("span", { class: `st is-${kind}` }, text, glyph(kind)),
        );
      }),
    ];
  }

  function outputs(data) {
    const seen = new Set(data.margins.map((m) => m.what)),
      rest = data.outputs.filter(([n, v]) => v !== null || !seen.has(n)).slice(0, 12);
    if (!rest.length || data.outcome === "pending" || data.outcome === "error") return null;
    return [
      h("h3", {}, "Outputs"),
      h(
        "table",
        { class: "params" },
        rest.map(([n, v, u]) =>
          h(
            "tr",
            {},
            h("td", { title: n }, short(n, 20)),
            h("td", { class: "r" }, v === null ? "NaN" : figure(v, 5)),
            h("td", { class: "muted" }, u),
          ),
        ),
      ),
    ];
  }

  function traces(data) {
    if (!data.traces.length) return null;
    const inner = app.width(el, 350) - 32,
      room = Math.max(200, Math.min(560, (inner > 560 ? (inner - 24) / 2 : inner) - 52));
    return data.traces.map((t) => {
      const mine = t.lines.find((l) => l.run === data.run),
        written = Boolean(mine?.x.length);
      const head = h(
        "h3",
        {},
        `Trace: ${t.name}${t.units ? `, ${t.units}` : ""}`,
        h(
          "span",
          { class: "legend-line" },
          written ? [traceKey(data.outcome), "this run"] : null,
          written && t.lines.length > 1 ? [traceKey("near"), "nearest passing"] : null,
        ),
      );
      if (!written)
        return [head, h("p", { class: "note" }, "No trace was written.")];
      return [head, tracePlot(t, data, room)];
    });
  }

  function texts(data) {
    const fold = (name, title, said, text, open) => {
      const node = h(
        "details",
        { open, data: { name } },
        h("summary", { data: { f: name } }, title, " ", h("span", { class: "muted xs" }, said)),
        text ? h("pre", { tabindex: 0 }, text) : null,
      );
      node.addEventListener("toggle", () => {
        opened[name] = node.open;
      });
      return node;
    };
    const lines = data.log ? data.log.trimEnd().split("\n").length : 0;
    const at = data.log.indexOf("Traceback (most recent call last)");
    const log = at >= 0 ? data.log.slice(0, at).trimEnd() : data.log.trimEnd(),
      trace = at >= 0 ? data.log.slice(at).trimEnd() : "";
    const wrong = data.outcome === "error";
    return [
      fold(
        "log",
        "Log",
        log ? plural(at >= 0 ? log.split("\n").length : lines, "line") : "nothing was printed",
        log,
        opened.log,
      ),
      fold(
        "error",
        "Traceback",
        wrong ? data.status : "none, the run finished",
        [data.error, trace].filter(Boolean).join("\n\n"),
        opened.error ?? wrong,
      ),
    ];
  }

  function facts(data) {
    const fact = (name, value) =>
      h("div", {}, h("dt", { class: "xs muted" }, name), h("dd", {}, value));
    const d = data.duration;
    return h(
      "dl",
      { class: "facts" },
      fact("Status", data.status),
      fact(
        "Duration",
        d === null ? "not known" : d < 1 ? `${figure(1000 * d, 3)} ms` : `${figure(d, 3)} s`,
      ),
      fact("Attempts", data.attempts === null ? "not known" : count(data.attempts)),
      fact("Seed", data.seed ? h("span", { class: "mono" }, data.seed) : "not known"),
    );
  }

  function actions(data) {
    const call = `sk.replay(sweep, ds, ${data.run})`;
    const note = h("div", { class: "note replay", "aria-live": "polite" });
    if (replayed) {
      const { same, text } = replayed.data;
      swap(
        note,
        same === true
          ? status("pass", "Reproduced: ", text)
          : same === false
            ? status("fail", "Differs: ", text)
            : text || replayed.data.why,
      );
    } else swap(note, h("span", { class: "mono xs" }, call));
    const again = h(
      "button",
      {
        class: "btn main",
        type: "button",
        data: { f: "again" },
        disabled: !app.meta.replay,
        title: app.meta.replay ? null : "Give the sweep: sk.explore(ds, replay=...)",
        onclick: () => {
          swap(note, "Running …");
          app.rerun(data.run);
        },
      },
      "Run again",
    );
    const copy = h(
      "button",
      {
        class: "btn",
        type: "button",
        data: { f: "copy" },
        onclick: () => {
          navigator.clipboard?.writeText(call).catch(() => {});
          swap(note, h("span", { class: "mono xs" }, call), " copied");
        },
      },
      "Copy call",
    );
    return [h("div", { class: "acts" }, again, copy), note];
  }

  function nearest(data) {
    if (data.outcome === "pass" && !app.meta.levers.length) return null;
    if (data.outcome === "pass")
      return [h("h3", {}, "Nearest passing run"), h("p", { class: "note" }, "This run passes.")];
    if (!data.nearest)
      return data.outcome === "pending"
        ? null
        : [
            h("h3", {}, "Nearest passing run"),
            h("p", { class: "note" }, "No run passes at these limits."),
          ];
    const n = data.nearest;
    return [
      h("h3", {}, "Nearest passing run"),
      h(
        "div",
        { class: "near" },
        h(
          "div",
          { class: "near-top" },
          h(
            "span",
            {},
            n.changes.map((c) =>
              h(
                "div",
                { class: "chg" },
                h("b", {}, c.name),
                " ",
                h("s", {}, c.old),
                " → ",
                h("b", {}, united(c.new, c.units)),
              ),
            ),
          ),
          h(
            "button",
            {
              class: "btn",
              type: "button",
              data: { f: "nearest" },
              onclick: () => app.open(n.run),
            },
            `Open ${count(n.run)}`,
          ),
        ),
        h(
          "div",
          { class: "s muted" },
          n.changes.length === app.meta.params.filter((p) => p.n > 1).length
            ? "All values change. "
            : `${n.changes.length === 1 ? "One value changes" : `${n.changes.length} values change`}, the rest stays. `,
          n.again ? status("pass", n.again) : null,
        ),
      ),
    ];
  }
  return { el, draw, parts: [], also: ["run", "replay"] };
}
