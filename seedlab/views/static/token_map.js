// Tokens in their turns, coloured by one value; one or two trajectories side by side.  Stands behind token_parts.js.
//
// All text is set as text, never as markup.  One listener per kind of event serves all tokens.

function render({ model, el }) {
  const spec = model.get("spec");
  const byKey = Object.fromEntries(spec.quantities.map((q) => [q.key, q]));
  const root = h("div", "sl-map");
  // JupyterLab would take the keys as its own: `d d` deletes a cell.
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  const style = h("style");
  style.textContent = paletteRules(spec.palettes);
  const bar = h("div", "sl-bar");
  const legend = h("div", "sl-legend");
  const pager = h("div", "sl-pager");
  const body = h("div", "sl-body");
  const panes = h("div", "sl-panes");
  const side = h("aside", "sl-side");
  const card = h("div", "sl-card");
  const skills = h("div", "sl-skills");
  const live = h("div", "sl-live");
  live.setAttribute("aria-live", "polite");
  side.append(card, skills);
  body.append(panes, side);
  const help = h("p", "sl-help", "Hover or click a token; with the keyboard: ← → token, ↑ ↓ line, Home End of the turn, n p turn, d first difference, s other side, 1–" + spec.quantities.length + " colour.");
  root.append(style, bar, legend, pager, body, help, live);
  el.replaceChildren(root);

  let story = [], values = [], pages = [[0, 0]], page = 0;
  let spans = [[], []];       // by pane: token index -> element, of this page
  let current = null;         // {pane, index} with the keyboard's focus
  let hovered = null;

  // ---- colours

  const shadeOf = (q, value) => {
    if (Number.isNaN(value)) return "na";
    const steps = spec.steps - 1;
    let share = (value - q.neutral) / (q.full - q.neutral);
    if (q.diverging) share = (share + 1) / 2;
    return (q.diverging ? "d" : "s") + Math.round(Math.min(1, Math.max(0, share)) * steps);
  };

  const paint = () => {
    const q = byKey[model.get("quantity")];
    spans.forEach((list, pane) => {
      for (const index in list) list[index].className = "t " + shadeOf(q, values[pane][q.column][index]);
    });
    if (current && spans[current.pane][current.index]) spans[current.pane][current.index].classList.add("cur");
    for (const button of bar.querySelectorAll("button")) {
      const on = button.dataset.key === q.key;
      button.setAttribute("aria-checked", on);
      button.tabIndex = on ? 0 : -1;
    }
    drawLegend(q);
    drawCard();
  };

  const drawLegend = (q) => {
    legend.replaceChildren();
    const [low, high] = q.domain;
    const scale = h("div", "sl-scale");
    const cells = h("div", "sl-cells");
    for (let i = 0; i < spec.steps; i++) cells.append(h("span", "t " + (q.diverging ? "d" : "s") + (q.full < q.neutral && !q.diverging ? spec.steps - 1 - i : i)));
    const ticks = h("div", "sl-ticks");
    for (const value of [low, (low + high) / 2, high]) ticks.append(h("span", "", String(value).replace("-", "−")));
    scale.append(cells, ticks);
    legend.append(h("b", "", q.label + (q.unit ? `, ${q.unit}` : "")), scale, h("span", "t na", " – "), h("span", "sl-soft", "does not apply"));
    legend.append(h("span", "sl-soft", q.sentence + (q.diverging ? ". Hatched: below the middle" : "") + ". Saturated beyond the ends; the bar grows with the value."));
  };

  spec.quantities.forEach((q, i) => {
    const button = h("button", "", q.label);
    button.type = "button";
    button.dataset.key = q.key;
    button.title = `${q.sentence} (key ${i + 1})`;
    button.setAttribute("role", "radio");
    button.addEventListener("click", () => choose(q.key));
    bar.append(button);
  });
  bar.setAttribute("role", "radiogroup");
  bar.setAttribute("aria-label", "colour tokens by");
  bar.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!move) return;
    event.preventDefault();
    const at = spec.quantities.findIndex((q) => q.key === model.get("quantity"));
    choose(spec.quantities[(at + move + spec.quantities.length) % spec.quantities.length].key);
    bar.querySelector("[aria-checked=true]").focus();
  });
  const choose = (key) => {
    model.set("quantity", key);
    model.save_changes();
  };

  // ---- values of one token

  const drawCard = () => {
    const at = hovered || current;
    card.replaceChildren();
    if (!at) {
      card.append(h("p", "sl-soft", "Point at a token for its values."));
      return;
    }
    const sides = story.length > 1 ? [0, 1] : [0];
    const indices = sides.map((pane) => (pane === at.pane ? at.index : twin(story, at, pane)));
    const q = byKey[model.get("quantity")];
    const step = stepOf(story, at);
    card.append(h("div", "sl-where", `turn ${step + 1}, token ${story[at.pane].position[at.index] + 1}`));
    const table = h("table");
    const row = (name, cells, marked) => {
      const line = h("tr", marked ? "on" : "");
      line.append(h("th", "", name));
      cells.forEach((cell) => line.append(h("td", "", cell)));
      table.append(line);
    };
    const each = (pick) => sides.map((pane, i) => (indices[i] === null ? "—" : pick(pane, indices[i])));
    if (sides.length > 1) row("", ["left", "right"]);
    row("token", each((pane, i) => JSON.stringify(story[pane].texts[i])));
    row("id", each((pane, i) => String(story[pane].ids[i])));
    for (const [name, column] of spec.values) row(name, each((pane, i) => shown(values[pane][column][i])), q.column === column);
    row("minibatch", each((pane, i) => `${story[pane].minibatch[i]}${story[pane].clipped[i] ? ", clipped" : ""}`));
    card.append(table);
  };

  const say = ({ pane, index }) => {
    const q = byKey[model.get("quantity")];
    const column = values[pane];
    live.textContent = `${story[pane].texts[index]}: ${q.label} ${shown(column[q.column][index])}, gate ${shown(column.gate[index])}, Δ ${shown(column.delta[index])}`;
  };

  // ---- the trajectories

  const observation = (text) => {
    const node = h("div", "sl-seen");
    const words = h("div", "sl-words", text);
    node.append(words);
    if (text.length > 700 || text.split("\n").length > 9) {
      words.classList.add("short");
      const more = h("button", "sl-more", "show all");
      more.type = "button";
      more.addEventListener("click", () => {
        more.textContent = words.classList.toggle("short") ? "show all" : "show less";
      });
      node.append(more);
    }
    return node;
  };

  const turnNode = (pane, number, turn, split) => {
    const node = h("section", "sl-turn");
    node.dataset.step = turn.step;
    const label = h("div", "sl-label", `turn ${turn.step + 1}` + (turn.valid ? "" : " · not a valid action"));
    node.append(label, observation(turn.observation));
    if (split && split.step === turn.step && split.kind === "observation") node.append(h("div", "sl-split", "◆ first difference: this observation"));
    const line = h("div", "sl-tokens");
    line.append(h("span", "sl-prompt", "› "));
    for (let i = turn.start; i < turn.end; i++) {
      if (split && split.kind === "token" && split[number ? "b" : "a"] === i) line.append(h("span", "sl-split", "◆ first difference "));
      const span = document.createElement("span");
      const text = pane.texts[i];
      span.textContent = text === "" ? "∅" : text.replaceAll("\n", "⏎\n");
      span.dataset.i = i;
      span.tabIndex = -1;
      spans[number][i] = span;
      line.append(span);
    }
    if (turn.start === turn.end) line.append(h("span", "sl-soft", "(no stored token)"));
    node.append(line);
    return node;
  };

  const skillNode = (card) => {
    const node = h("div", "sl-skill");
    node.append(h("b", "", card.heading));
    if (card.text) node.append(h("p", "sl-text", card.text));
    if (card.verdict) {
      const mark = card.accepted === true ? "✓ " : card.accepted === false ? "✕ " : "";
      node.append(h("p", "sl-verdict " + (card.accepted === true ? "good" : card.accepted === false ? "bad" : ""), mark + card.verdict));
    }
    if (card.note) node.append(h("p", "sl-soft", card.note));
    return node;
  };

  const drawPage = () => {
    const [from, to] = pages[page];
    spans = [[], []];
    const split = model.get("split");
    const wanted = split && split.step !== undefined ? split : null;
    panes.replaceChildren();
    story.forEach((pane, number) => {
      const node = h("div", "sl-pane");
      node.dataset.pane = number;
      const head = h("header");
      head.append(h("b", "", pane.goal || pane.title));
      const facts = h("div", "sl-facts");
      pane.facts.forEach((fact, i) => facts.append(h("span", i === 0 ? (pane.success ? "good" : "bad") : "", (i === 0 ? (pane.success ? "✓ " : "✕ ") : "") + fact)));
      head.append(facts, h("div", "sl-soft", `${pane.title} · ${pane.id}`));
      if (pane.note) head.append(h("div", "sl-soft", pane.note));
      // Rows of one grid, so that the same turn stands side by side whatever its length.
      const put = (child, row) => {
        child.style.gridArea = `${row} / ${number + 1}`;
        node.append(child);
      };
      put(head, 1);
      if (story.length > 1 && pane.skill) put(skillNode(pane.skill), 2);
      pane.turns.slice(from, to).forEach((turn, i) => put(turnNode(pane, number, turn, wanted), 3 + i));
      if (to >= pane.turns.length && pane.final) {
        const last = h("section", "sl-turn");
        last.append(h("div", "sl-label", "end"), observation(pane.final));
        put(last, 3 + to - from);
      }
      panes.append(node);
    });
    root.classList.toggle("two", story.length > 1);
    skills.replaceChildren();
    if (story.length === 1 && story[0].skill) skills.append(skillNode(story[0].skill));
    if (story.length > 1) {
      const sentence = wanted ? wanted.sentence : "Both are the same, token for token.";
      skills.append(h("p", "sl-soft", model.get("remark") || sentence));
    }
    drawPager();
    const first = [0, 1].map((pane) => spans[pane].find(Boolean)).find(Boolean);
    if (first) first.tabIndex = 0;
    paint();
  };

  const drawPager = () => {
    pager.replaceChildren();
    pager.hidden = pages.length < 2;
    if (pager.hidden) return;
    const button = (text, to) => {
      const node = h("button", "", text);
      node.type = "button";
      node.disabled = to < 0 || to >= pages.length;
      node.addEventListener("click", () => turnTo(to));
      pager.append(node);
    };
    button("◀ earlier", page - 1);
    pager.append(h("span", "", `turns ${pages[page][0] + 1}–${pages[page][1]} of ${pages[pages.length - 1][1]}`));
    button("later ▶", page + 1);
  };

  const turnTo = (to) => {
    page = Math.min(pages.length - 1, Math.max(0, to));
    current = hovered = null;
    drawPage();
  };

  // ---- pointing and keys

  const place = (node) => {
    const span = node.closest && node.closest(".t[data-i]");
    return span && panes.contains(span) ? { pane: Number(span.closest(".sl-pane").dataset.pane), index: Number(span.dataset.i) } : null;
  };

  panes.addEventListener("pointerover", (event) => {
    const at = place(event.target);
    if (at) {
      hovered = at;
      drawCard();
    }
  });
  panes.addEventListener("pointerleave", () => {
    hovered = null;
    drawCard();
  });
  panes.addEventListener("click", (event) => {
    const at = place(event.target);
    if (at) focus(at);
  });
  panes.addEventListener("focusin", (event) => {
    const at = place(event.target);
    if (at && !(current && current.pane === at.pane && current.index === at.index)) mark(at);
  });

  const mark = (at) => {
    if (current) {
      const old = spans[current.pane][current.index];
      if (old) {
        old.classList.remove("cur");
        old.tabIndex = -1;
      }
    }
    current = at;
    hovered = null;
    const span = spans[at.pane][at.index];
    span.classList.add("cur");
    span.tabIndex = 0;
    drawCard();
    say(at);
    const turn = story[at.pane].turns[stepOf(story, at)];
    model.set("focused", { pane: at.pane, index: at.index, step: turn.step, position: story[at.pane].position[at.index] });
    model.save_changes();
  };

  const focus = (at) => {
    if (!at) return;
    const step = stepOf(story, at);
    if (step < pages[page][0] || step >= pages[page][1]) {
      page = pages.findIndex(([from, to]) => from <= step && step < to);
      current = null;
      drawPage();
    }
    const span = spans[at.pane][at.index];
    span.focus({ preventScroll: true });
    span.scrollIntoView({ block: "nearest" });
    mark(at);
  };

  panes.addEventListener("keydown", (event) => {
    if (!current || event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "BUTTON") return;
    const number = Number(event.key);
    if (number >= 1 && number <= spec.quantities.length) choose(spec.quantities[number - 1].key);
    else {
      const to = destination(event.key, current, story, spans, model.get("split"));
      if (to === undefined) return;
      focus(to);
    }
    event.preventDefault();
    event.stopPropagation();
  });

  // ---- what comes from outside

  const load = () => {
    const started = performance.now();
    story = model.get("story");
    values = decode(story, model.get("values"), spec.values.map(([, column]) => column));
    pages = pagesOf(story, spec.page_tokens);
    page = 0;
    current = hovered = null;
    drawPage();
    root.dataset.milliseconds = Math.round(performance.now() - started);
    root.dataset.revision = model.get("revision");
  };
  model.on("change:revision", load);
  model.on("change:quantity", paint);
  const stopTheme = watchTheme(root, model);
  load();
  return () => {
    model.off("change:revision", load);
    model.off("change:quantity", paint);
    stopTheme();
  };
}

export default { render };
