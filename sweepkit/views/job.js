// A job in the notebook. Python sends what is shown, escaped; here it is put in place, so that
// what has the focus keeps it, and what a person does is sent back.

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function button(text, action) {
  const made = element("button", "", text);
  made.type = "button";
  made.dataset.lmSuppressShortcuts = "true"; // the notebook would take Enter and the arrows
  made.addEventListener("click", action);
  return made;
}

function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function kindRow(glyph) {
  const row = element("div", "sk-kind");
  const mark = element("span");
  mark.innerHTML = glyph;
  const parts = { name: element("span"), count: element("span", "sk-count"), where: element("span") };
  const log = element("pre");
  log.hidden = true;
  log.tabIndex = 0;
  log.dataset.lmSuppressShortcuts = "true";
  const open = button("First traceback", () => {
    log.hidden = !log.hidden;
    open.setAttribute("aria-expanded", String(!log.hidden));
  });
  open.setAttribute("aria-expanded", "false");
  row.append(mark, parts.name, parts.count, parts.where, open, log);
  return { row, log, open, ...parts };
}

function render({ model, el }) {
  const card = element("div", "sk-job");
  const head = element("div", "sk-head");
  const mark = element("span");
  const state = element("b");
  state.setAttribute("role", "status");
  const where = element("span", "sk-where");
  const steer = (act) => () => model.send({ act });
  const pause = button("Pause", () => steer(pause.textContent.toLowerCase())());
  const cancel = button("Cancel", () => {
    pause.disabled = cancel.disabled = true;
    cancel.textContent = "Cancelling";
    steer("cancel")();
  });
  head.append(mark, state, where, pause, cancel);
  const main = element("div");
  const fault = element("div", "sk-fault");
  const errors = element("details");
  const summary = element("summary");
  summary.dataset.lmSuppressShortcuts = "true";
  errors.append(summary);
  card.append(head, main, fault, errors);
  el.replaceChildren(card);
  const kinds = new Map();

  const draw = () => {
    const now = model.get("shown");
    if (!now.state) return;
    mark.innerHTML = now.glyph;
    say(state, now.state);
    say(where, now.where);
    say(pause, now.state === "paused" ? "Resume" : "Pause");
    if (now.ended) say(cancel, "Cancel");
    const cancelling = cancel.textContent !== "Cancel";
    pause.disabled = cancel.disabled = now.ended || cancelling;
    main.innerHTML = now.main;
    fault.hidden = !now.fault;
    say(fault, now.fault);
    errors.hidden = now.errors.length === 0;
    summary.innerHTML = now.summary;
    for (const one of now.errors) {
      if (!kinds.has(one.kind)) {
        const made = kindRow(now.mark);
        kinds.set(one.kind, made);
        errors.append(made.row);
        if (kinds.size === 1) errors.open = true;
      }
      const row = kinds.get(one.kind);
      const example = model.get("examples")[one.kind] ?? {};
      say(row.name, example.error ?? one.kind);
      say(row.count, one.count);
      say(row.where, example.where ?? "");
      say(row.log, example.log || "nothing was printed");
      say(row.open, example.traceback === false ? "First log" : "First traceback");
      row.open.disabled = !example.kind;
    }
  };
  model.on("change:shown", draw);
  draw();
  return () => model.off("change:shown", draw);
}

export default { render };
