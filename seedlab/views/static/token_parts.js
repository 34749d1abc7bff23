// Parts of the token map that hold no state: values, colours, pages, theme, and where a key leads.
// Values come as one block of float32, [values, tokens] per trajectory.

const h = (tag, className, text) => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};

const shown = (value) => {
  if (Number.isNaN(value)) return "—";
  const size = Math.abs(value);
  const digits = size !== 0 && size < 0.001 ? size.toExponential(1).replace("-", "−") : size.toFixed(3);
  return (value < 0 ? "−" : "") + digits;
};

function decode(story, buffer, names) {
  // A copy: the block need not start at a multiple of four.
  const bytes = buffer.byteLength === undefined ? new Uint8Array(0)
    : new Uint8Array(buffer.buffer || buffer, buffer.byteOffset || 0, buffer.byteLength);
  const all = new Float32Array(bytes.slice().buffer);
  let offset = 0;
  return story.map((pane) => {
    const count = pane.texts.length;
    const columns = {};
    for (const name of names) {
      columns[name] = all.subarray(offset, offset + count);
      offset += count;
    }
    return columns;
  });
}

function paletteRules(palettes) {
  // Colour is never alone: a bar below the token grows with the size of the value, and below the neutral value the
  // token is hatched.  The legend is made of the same classes.
  const rules = [];
  for (const [theme, kinds] of Object.entries(palettes)) {
    const scope = theme === "dark" ? ".sl-map.dark" : ".sl-map";
    for (const [kind, shades] of Object.entries(kinds)) {
      const middle = kind === "diverging" ? (shades.length - 1) / 2 : 0;
      shades.forEach(([background, ink], i) => {
        const size = Math.abs(i - middle) / (shades.length - 1 - middle);
        const bar = Math.round(size * 4);
        const hatch = i < middle ? `repeating-linear-gradient(135deg,${ink}38 0 1px,transparent 1px 4px)` : "none";
        rules.push(`${scope} .${kind[0]}${i}{background-color:${background};color:${ink};background-image:${hatch};box-shadow:inset 0 -${bar}px 0 ${ink}8c}`);
      });
    }
  }
  return rules.join("\n");
}

function pagesOf(story, limit) {
  // Whole turns, as many as stay below the limit together; a longer turn stands alone.
  const last = Math.max(0, ...story.map((pane) => pane.turns.length));
  const pages = [];
  let size = 0;
  for (let step = 0; step < last; step++) {
    const length = story.reduce((sum, pane) => sum + (step < pane.turns.length ? pane.turns[step].end - pane.turns[step].start : 0), 0);
    if (!pages.length || (size + length > limit && size > 0)) {
      pages.push([step, step + 1]);
      size = 0;
    }
    pages[pages.length - 1][1] = step + 1;
    size += length;
  }
  return pages.length ? pages : [[0, 0]];
}

function watchTheme(root, model) {
  const query = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const wanted = model.get("theme");
    const lab = document.body.dataset.jpThemeLight;
    const dark = wanted === "auto" ? (lab === undefined ? query.matches : lab === "false") : wanted === "dark";
    root.classList.toggle("dark", dark);
  };
  const observer = new MutationObserver(apply);
  observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  query.addEventListener("change", apply);
  model.on("change:theme", apply);
  apply();
  return () => {
    observer.disconnect();
    query.removeEventListener("change", apply);
    model.off("change:theme", apply);
  };
}

// ---- where a key leads; a place is {pane, index}, null where there is none

const stepOf = (story, { pane, index }) => story[pane].turns.findIndex((turn) => turn.start <= index && index < turn.end);

function twin(story, at, pane) {
  // The index of the same place in the other pane.
  const turn = story[pane].turns[stepOf(story, at)];
  if (!turn) return null;
  const index = turn.start + story[at.pane].position[at.index];
  return index < turn.end ? index : null;
}

function lineFrom(story, spans, at, direction) {
  // The token above or below, on the nearest line that has one.
  const own = spans[at.pane][at.index].getBoundingClientRect();
  const middle = (own.left + own.right) / 2;
  let best = null, bestRow = null, bestGap = Infinity;
  for (let i = at.index + direction; i >= 0 && i < story[at.pane].texts.length; i += direction) {
    const span = spans[at.pane][i];
    if (!span) break;
    const box = span.getBoundingClientRect();
    const row = Math.round(box.top);
    if (Math.abs(row - Math.round(own.top)) < 4) continue;
    if (bestRow === null) bestRow = row;
    if (Math.abs(row - bestRow) > 4) break;
    const gap = Math.abs((box.left + box.right) / 2 - middle);
    if (gap < bestGap) [best, bestGap] = [i, gap];
  }
  return best === null ? null : { pane: at.pane, index: best };
}

function nextTurn(story, at, direction) {
  const turns = story[at.pane].turns;
  for (let step = stepOf(story, at) + direction; step >= 0 && step < turns.length; step += direction) {
    if (turns[step].end > turns[step].start) return { pane: at.pane, index: turns[step].start };
  }
  return null;
}

function destination(key, at, story, spans, split) {
  // undefined: the key is none of the view's.
  const { pane, index } = at;
  const turn = story[pane].turns[stepOf(story, at)];
  const within = (i) => (i >= 0 && i < story[pane].texts.length ? { pane, index: i } : null);
  switch (key) {
    case "ArrowRight": return within(index + 1);
    case "ArrowLeft": return within(index - 1);
    case "ArrowDown": return lineFrom(story, spans, at, 1);
    case "ArrowUp": return lineFrom(story, spans, at, -1);
    case "Home": return { pane, index: turn.start };
    case "End": return { pane, index: turn.end - 1 };
    case "n": return nextTurn(story, at, 1);
    case "p": return nextTurn(story, at, -1);
    case "s": {
      const other = story.length > 1 ? twin(story, at, 1 - pane) : null;
      return other === null ? null : { pane: 1 - pane, index: other };
    }
    case "d": {
      const place = split && (pane ? split.b : split.a);
      return place === null || place === undefined ? null : { pane, index: place };
    }
    default: return undefined;
  }
}

