// The explorer: views around one state.
import { App } from "./app.js";
import { chipsView, headerView } from "./header.js";
import { requirementsView } from "./requirements.js";
import { mapView } from "./map.js";
import { heldView } from "./held.js";
import { pairsView } from "./pairs.js";
import { runView } from "./run.js";
import { islandsView, kindsView } from "./kinds.js";
import { sureView } from "./sure.js";
import { distributionView } from "./distribution.js";
import { parallelView } from "./parallel.js";
import { regionsView } from "./regions.js";
import { h, swap } from "./draw.js";

const VIEWS = {
  requirements: requirementsView,
  map: mapView,
  held: heldView,
  pairs: pairsView,
  distribution: distributionView,
  parallel: parallelView,
  kinds: kindsView,
  sure: sureView,
  islands: islandsView,
  regions: regionsView,
};

function luminance(colour) {
  const found = /rgba?\(([\d.]+)[, ]+([\d.]+)[, ]+([\d.]+)(?:[,/ ]+([\d.]+))?/.exec(colour);
  if (!found || (found[4] !== undefined && Number(found[4]) < 0.5)) return null;
  return (0.299 * found[1] + 0.587 * found[2] + 0.114 * found[3]) / 255;
}

// The theme of what surrounds the explorer: the first ground behind it that is not transparent.
function surrounding(node) {
  for (let at = node.parentNode; at; at = at.parentNode || at.host) {
    if (at instanceof ShadowRoot) {
      at = at.host;
    }
    if (!(at instanceof Element)) continue;
    const light = luminance(getComputedStyle(at).backgroundColor);
    if (light !== null) return light < 0.5 ? "dark" : "light";
  }
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function render({ model, el }) {
  const root = h("div", { class: "sk-explorer", data: { theme: "light" } });
  const style = h("style", {}, STYLE);
  el.append(style, root);
  const app = new App(model, root);
  const theme = () => {
    const asked = app.meta?.theme || "auto",
      now = asked === "auto" ? surrounding(root) : asked;
    if (root.dataset.theme !== now) {
      root.dataset.theme = now;
      if (app.meta) app.draw();
    }
  };
  app.onTheme = theme;
  app.rerun = (run) =>
    app.say({
      state: app.state,
      want: ["replay"],
      run,
      key: JSON.stringify([["replay", `${run}`]]),
    });
  app.build = () => {
    const wanted = model.get("views") || [],
      names = (wanted.length ? wanted : Object.keys(VIEWS)).filter((n) => VIEWS[n]);
    const left = h("div", { class: "left" }),
      header = headerView(app),
      chips = chipsView(app);
    app.views = [];
    swap(root, h("div", { class: "bands" }, app.add(header), app.add(chips)));
    for (const name of names) {
      if (name === "regions" && !app.meta.levers.length) continue;
      left.append(app.add(VIEWS[name](app)));
    }
    const alone = wanted.length && !wanted.includes("run");
    const main = h(
      "main",
      { class: alone ? "alone" : null },
      left,
      alone ? null : app.add(runView(app)),
    );
    root.append(h("div", { class: "wrap" }, main));
    theme();
  };
  app.begin();
  const watch = new MutationObserver(theme);
  for (const node of [document.documentElement, document.body])
    watch.observe(node, {
      attributes: true,
      attributeFilter: [
        "class",
        "style",
        "data-theme",
        "data-jp-theme-light",
        "data-jp-theme-name",
      ],
    });
  let width = 0;
  const resize = new ResizeObserver(() => {
    const now = Math.round(root.clientWidth);
    if (now !== width) {
      width = now;
      app.widths.clear();
      if (now && app.meta) app.draw();
    }
    theme();
  });
  resize.observe(root);
  return () => {
    app.end();
    watch.disconnect();
    resize.disconnect();
  };
}

export default { render };
