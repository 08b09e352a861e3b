// The state in the browser, what is known for it, and the conversation with Python.
import { h, unpack } from "./draw.js";
import { limitMoved, sliderMoved } from "./moved.js";

const QUIET = 90; // ms without a move before slow parts are asked for

export class App {
  constructor(model, root) {
    this.model = model;
    this.root = root;
    this.meta = null;
    this.state = null;
    this.parts = {};
    this.asked = {};
    this.views = [];
    this.flying = null;
    this.frame = 0;
    this.quiet = 0;
    this.pinned = 0;
    this.dragging = false;
    this.widths = new Map();
    this.listener = (message) => this.take(message);
  }

  // --- talking -------------------------------------------------------------------------------------

  begin() {
    this.me = Math.random().toString(36).slice(2);
    if (this.model.send) {
      this.model.on("msg:custom", this.listener);
    } else {
      this.model.on("msg:custom", this.listener);
    }
    const first = this.model.get("first");
    if (first) this.hello(JSON.parse(first));
    this.say({ hello: this.me }); // a page that is opened again hears how things are now
  }

  end() {
    this.model.off?.("msg:custom", this.listener);
    clearTimeout(this.quiet);
    clearTimeout(this.unlaid);
    cancelAnimationFrame(this.frame);
  }

  say(message) {
    if (this.model.send) this.model.send(message);
    else {
      // A property keeps its last value only and Panel waits before it looks: so the last messages
      // travel together, each with its number.
      this.n = (this.n || 0) + 1;
      this.sent = [...(this.sent || []), { ...message, n: this.n, me: this.me }].slice(-30);
      this.model.set("ask", JSON.stringify(this.sent));
      this.model.save_changes();
    }
  }

  take(message) {
    if (message.hello) {
      if (message.to === this.me) {
        if (this.meta) this.follow(message.hello.state, message.hello.meta.theme, message.hello);
        else this.hello(message.hello);
      }
      return;
    }
    if (!this.meta) return;
    if (message.news) this.hello(message.news, true);
    if (message.meta) this.meta = message.meta;
    if (message.state) this.follow(message.state, message.theme);
    if (message.problem) this.problem(message.problem);
    if (message.part) this.answer(message.part, message.key, message.data);
  }

  hello({ meta, state, overview }, news = false) {
    const before = this.state,
      levers = this.meta?.levers;
    this.meta = meta;
    this.state = state;
    if (news && before) {
      this.state = { ...state, run: before.run ?? state.run };
      this.asked = {};
      for (const name of Object.keys(this.parts)) this.parts[name].key = "old";
      // The limits stay where they are, whatever stops there are now.
      const stops = meta.levers.map((r, k) => {
        const limit = levers[k]?.stops[before.stops[k]];
        return limit === undefined
          ? state.stops[k]
          : r.stops.reduce(
              (best, v, i) => (Math.abs(v - limit) < Math.abs(r.stops[best] - limit) ? i : best),
              0,
            );
      });
      const { x, y, by, by2, show } = before;
      this.state = { ...this.state, stops, x, y, by, by2, show };
    }
    this.parts.overview = { key: news ? "old" : this.key(), data: overview };
    if (!news) this.build();
    this.draw();
    this.sync();
  }

  follow(state, theme, told = null) {
    if (told) {
      if (JSON.stringify(told.state) === JSON.stringify(this.state) && told.meta.n === this.meta.n)
        return;
      this.meta = told.meta;
      this.parts = { overview: { key: "old", data: told.overview } };
    }
    this.state = { ...state };
    if (theme) {
      this.meta.theme = theme;
      this.onTheme?.();
    }
    this.asked = {};
    this.draw();
    this.sync();
  }

  problem(text) {
    this.flying = null;
    this.trouble = text;
    for (const view of this.views) // what waits for an answer says why there is none
      for (const name of view.parts || []) this.parts[name] ??= { key: null, data: { why: text } };
    this.draw();
  }

  // --- state ---------------------------------------------------------------------------------------

  // What an overview depends on; `without` leaves one limit or slider out.
  key(state = this.state) {
    return JSON.stringify([
      state.x,
      state.y,
      state.by,
      state.at,
      state.stops,
      state.filters,
      state.show,
      state.by2 || "",
    ]);
  }

  // What a slow part depends on.
  partKey(name, state = this.state) {
    const base = [state.stops, state.filters];
    if (name === "drags") return this.key(state);
    if (name === "distribution") return JSON.stringify([base, state.output, state.x]);
    if (name === "regions")
      return JSON.stringify([state.stops, state.filters.filter((f) => f.src !== "box")]);
    if (name === "run" || name === "first") return JSON.stringify([base, state.run]);
    if (name === "lines") return JSON.stringify([state.filters, this.relative() ? state.stops : 0]);
    return JSON.stringify(base);
  }

  // Whether filters name what moves with the limits, so that counts cannot be moved without Python.
  relative() {
    return this.state.filters.some((f) =>
      f.tests.some((t) => t.outcome || t.kind || t.island !== undefined),
    );
  }

  set(changes, { drag = false } = {}) {
    this.trouble = null;
    this.state = { ...this.state, ...changes };
    if (drag) {
      this.draw(true);
    } else this.draw();
    this.sync();
  }

  filter(filter, { open = false } = {}) {
    const same = (f) => f.src === filter.src && (filter.src !== "brush" || f.on === filter.on);
    const rest = this.state.filters.filter((f) => !same(f));
    this.wantsFirst = open;
    this.set({ filters: [...rest, filter] });
  }

  unfilter(test) {
    this.set({ filters: this.state.filters.filter((f) => !test(f)) });
  }

  open(run) {
    this.set({ run });
    this.ask("run");
  }

  // --- asking --------------------------------------------------------------------------------------

  sync() {
    clearTimeout(this.quiet);
    this.quiet = setTimeout(() => this.askSlow(), QUIET);
    if (this.flying) return;
    const key = this.key();
    if (this.parts.overview?.key === key) return;
    this.flying = key;
    this.say({ state: this.state, want: ["overview"], key });
  }

  ask(...names) {
    for (const name of names) this.asked[name] = this.partKey(name);
    this.say({
      state: this.state,
      want: names,
      key: JSON.stringify(names.map((n) => [n, this.partKey(n)])),
    });
  }

  askSlow() {
    if (this.flying || this.parts.overview?.key !== this.key()) return this.sync();
    const wanted = new Set(["drags"]);
    for (const view of this.views)
      if (view.seen !== false) for (const part of view.parts || []) wanted.add(part);
    if (this.state.run !== null) wanted.add("run");
    if (this.wantsFirst) {
      wanted.add("first");
      this.wantsFirst = false;
      delete this.asked.first;
    }
    const names = [...wanted].filter(
      (n) => this.asked[n] !== this.partKey(n) && this.parts[n]?.key !== this.partKey(n),
    );
    if (names.length) this.ask(...names);
  }

  answer(name, key, data) {
    if (name === "overview") {
      this.parts.overview = { key, data };
      this.flying = null;
      if (key !== this.key()) this.sync();
      this.draw(this.dragging);
      return;
    }
    const own = new Map(JSON.parse(key || "[]"));
    this.parts[name] = { key: own.get(name), data };
    if (name === "first" && data.run !== null && data.run !== undefined) {
      this.open(data.run);
      return;
    }
    for (const view of this.views)
      if ((view.parts || []).includes(name) || view.also?.includes(name)) this.paint(view);
  }

  part(name) {
    return this.parts[name]?.data ?? null;
  }

  fresh(name) {
    return this.parts[name]?.key === this.partKey(name);
  }

  // --- drawing -------------------------------------------------------------------------------------

  add(view) {
    this.views.push(view);
    if (view.lazy && "IntersectionObserver" in window) {
      view.seen = false;
      new IntersectionObserver(
        (entries) => {
          const seen = entries.some((e) => e.isIntersecting);
          if (seen && !view.seen) {
            view.seen = true;
            this.paint(view);
            this.sync();
          } else if (!seen) view.seen = false;
        },
        { rootMargin: "200px" },
      ).observe(view.el);
    }
    return view.el;
  }

  draw(drag = false) {
    this.pendingDrag = this.frame ? this.pendingDrag && drag : drag;
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (!this.root.clientWidth) return; // not on the screen: it is drawn when it gets a width
      const light = this.pendingDrag;
      for (const view of this.views) {
        if (view.seen !== false && (!light || view.moves)) this.paint(view, light);
      }
      this.root.dataset.drawn = String(Number(this.root.dataset.drawn || 0) + 1);
      this.root.dataset.key = this.parts.overview?.key === this.key() ? "settled" : "moving";
    });
  }

  // A view that cannot be drawn says so, and leaves the others as they are.
  paint(view, light) {
    let said = "";
    try {
      view.draw(light);
    } catch (error) {
      said = `This view could not be drawn: ${error.message}`;
      reportError(error);
    }
    if (said && !view.broken) view.el.append((view.broken = h("p", { class: "empty" })));
    if (view.broken) view.broken.textContent = said;
  }

  // --- what can be said without Python -------------------------------------------------------------

  // Which one limit or slider a known state differs in from the present one; null if in more.
  differs(known) {
    const [x, y, by, at, stops, filters, show, by2] = JSON.parse(known);
    const now = this.state;
    if (x !== now.x || y !== now.y || by !== now.by || show !== now.show) return null;
    if (by2 !== (now.by2 || "")) return null;
    if (
      JSON.stringify(filters) !== JSON.stringify(now.filters) ||
      stops.length !== now.stops.length
    )
      return null;
    const limits = stops.map((v, k) => (v !== now.stops[k] ? k : -1)).filter((k) => k >= 0);
    const names = [...new Set([...Object.keys(at), ...Object.keys(now.at)])];
    const sliders = names.filter((n) => (at[n] ?? null) !== (now.at[n] ?? null));
    if (limits.length + sliders.length !== 1) return limits.length + sliders.length ? null : {};
    return limits.length ? { limit: limits[0] } : { slider: sliders[0] };
  }

  // The map's cells as they are now: counted by Python, or moved here from its cubes.
  cells() {
    const data = this.part("overview");
    const base = {};
    for (const name of [
      "pass",
      "fail",
      "error",
      "pending",
      "there",
      "rate",
      "low",
      "high",
      "basis",
    ])
      base[name] = unpack(data.cells[name]);
    base.value = data.value;
    if (this.parts.overview.key === this.key()) return { ...base, exact: true };
    const drags = this.parts.drags;
    if (!drags?.data?.limits || !drags.key || !this.meta.local || this.relative())
      return { ...base, exact: false };
    let way = null;
    try {
      way = this.differs(drags.key);
    } catch {
      way = null;
    }
    if (!way) return { ...base, exact: false };
    if (way.limit !== undefined) {
      const cube = unpack(drags.data.limits[way.limit]),
        other = this.differs(
          this.parts.overview.key === "old" ? drags.key : this.parts.overview.key,
        );
      if (!cube || !other || other.slider !== undefined) return { ...base, exact: false };
      const stops = this.meta.levers[way.limit].stops.length,
        stop = this.state.stops[way.limit];
      return limitMoved(base, cube, stops, stop);
    }
    if (way.slider === undefined) return { ...base, exact: false };
    const cube = unpack(drags.data.sliders[way.slider]);
    if (!cube) return { ...base, exact: false };
    const size = this.meta.params.find((p) => p.name === way.slider).n,
      at = this.state.at[way.slider] ?? null;
    return sliderMoved(base, cube, size, at);
  }

  // Which one limit has moved since the overview was counted, if only that.
  movedLimit() {
    if (this.parts.overview.key === this.key() || this.relative()) return null;
    try {
      const way = this.differs(this.parts.overview.key);
      return way && way.limit !== undefined ? way.limit : null;
    } catch {
      return null;
    }
  }

  // Tallies of the selected runs (of all, where nothing is filtered) as the limits are now.
  tally() {
    const data = this.part("overview"),
      base = data.selected || data.all,
      k = this.movedLimit();
    // Weighted runs are no plain counts: their rate is Python's.
    if (k === null || !this.meta.local)
      return { ...base, exact: this.parts.overview.key === this.key() };
    const pass = unpack(data.levers[k].passing)[this.state.stops[k]];
    const known = base.pass + base.fail,
      fail = known - pass;
    return { ...base, pass, fail, rate: fail / known, low: null, high: null, exact: true };
  }

  // Width of a part of a card. It follows from the root's alone, and asking the browser anew after
  // each view has drawn would make it lay out everything again each time.
  width(node, otherwise) {
    if (!this.widths.has(node)) {
      const width = node.clientWidth;
      if (!width) {
        // It is not laid out yet: what is drawn now is drawn again once it may be.
        clearTimeout(this.unlaid);
        this.unlaid = setTimeout(() => this.draw(), 200);
        return otherwise;
      }
      this.widths.set(node, width);
    }
    return this.widths.get(node);
  }

  param(name) {
    return this.meta.params.find((p) => p.name === name);
  }

  // --- tooltip -------------------------------------------------------------------------------------

  tip(x, y, ...content) {
    if (!this.tipNode) {
      this.tipNode = h("div", { class: "tip", role: "status" });
      this.root.append(this.tipNode);
    }
    const tip = this.tipNode;
    tip.textContent = "";
    tip.append(...content);
    tip.style.visibility = "visible";
    const box = this.root.getBoundingClientRect(),
      own = tip.getBoundingClientRect();
    const left = Math.max(4, Math.min(x - box.left + 14, box.width - own.width - 8));
    let top = y - box.top + 16;
    if (y + own.height + 24 > window.innerHeight) top = y - box.top - own.height - 12;
    tip.style.left = `${left}px`;
    tip.style.top = `${top}px`;
  }

  untip() {
    if (this.tipNode) this.tipNode.style.visibility = "hidden";
  }
}
