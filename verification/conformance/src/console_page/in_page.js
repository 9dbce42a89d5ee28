// What the tests of the console's page need inside the page. It is there before the page's own scripts.
(() => {
  const box = (element) => element.getBoundingClientRect();
  const isVisible = (element) => {
    const { width, height } = box(element);
    return width > 0 && height > 0 && getComputedStyle(element).visibility !== "hidden";
  };
  const tidy = (text) => text.replaceAll(/\s+/g, " ").trim();
  /** An open dialog is in front of everything else. */
  const scope = () => document.querySelector("dialog[open]") ?? document;
  const nameOf = (element) => {
    const own = element.getAttribute("aria-label");
    if (own) return own;
    const label = element.closest("label");
    if (label && ["INPUT", "SELECT", "TEXTAREA"].includes(element.tagName)) return tidy(label.querySelector("span")?.textContent ?? label.textContent);
    return tidy(element.innerText ?? element.textContent);
  };
  const named = (selector, name) => {
    const all = [...scope().querySelectorAll(selector)].filter(isVisible);
    return all.find((it) => nameOf(it) === name) ?? all.find((it) => nameOf(it).startsWith(name)) ?? null;
  };
  const field = (label) => named("input, textarea, select", label);
  let awaited = null;
  let clicked = null;
  let took = null;
  /** What the pointer is to hit next, and whether a click has hit it. */
  let sought = null;
  let isHit = true;
  // A page that moves between the look and the press must not do what the button beside would do.
  for (const kind of ["pointerdown", "mousedown", "pointerup", "mouseup", "click"]) {
    addEventListener(
      kind,
      (event) => {
        if (isHit || sought === null) return;
        if (!sought.contains(event.target)) {
          event.preventDefault();
          event.stopImmediatePropagation();
        } else if (kind === "click") {
          isHit = true;
          clicked = performance.now();
        }
      },
      true,
    );
  }
  const watch = () => {
    if (awaited !== null && clicked !== null && took === null && awaited()) took = performance.now() - clicked;
    if (awaited !== null && took === null) requestAnimationFrame(watch);
  };

  /** The middle of an element, in view, which the next click is to hit; `null` without one. */
  const middle = (found) => {
    if (!found || found.disabled) return null;
    sought = found;
    isHit = false;
    found.scrollIntoView({ block: "nearest", inline: "nearest" });
    const { x, y, width, height } = box(found);
    return [x + Math.min(width / 2, 60), y + height / 2];
  };

  window.inPage = {
    text: () => document.body.innerText,
    /** The middle of what has this name, in view. */
    target: (name) => middle(named("button, a, summary, input[type=checkbox], label.check", name)),
    /** The middle of an entry of the navigation. */
    entry: (name) => middle([...document.querySelectorAll("nav[aria-label=Pages] a")].find((it) => nameOf(it.querySelector("span")) === name)),
    /** Whether the last click met something else than what was sought, or nothing. */
    isMissed: () => !isHit,
    focus: (label) => {
      const found = field(label);
      if (!found) return false;
      found.focus();
      found.select();
      return document.activeElement === found;
    },
    /** Sets a field that is not a field of text; false for one that is. */
    set: (label, text) => {
      const found = field(label);
      if (found.type !== "datetime-local") return false;
      found.value = text;
      found.dispatchEvent(new Event("input", { bubbles: true }));
      return true;
    },
    choose: (label, text) => {
      const found = field(label);
      const option = found && [...found.options].find((it) => it.textContent === text || it.value === text);
      if (!option) return false;
      found.value = option.value;
      found.dispatchEvent(new Event("change", { bubbles: true }));
      return true;
    },
    table: () => document.querySelector(".table"),
    /** Scrolls through the whole table in so many frames, and looks in each whether rows are where the eye is. */
    scroll: (frames) =>
      new Promise((done) => {
        const table = window.inPage.table();
        const rows = Number(table.querySelector("table").getAttribute("aria-rowcount")) - 1;
        const far = table.scrollHeight - table.clientHeight;
        const times = [];
        let frame = 0;
        let blanks = 0;
        const next = (now) => {
          times.push(now);
          const { x, y, height } = box(table);
          if (document.elementFromPoint(x + 20, y + height / 2)?.closest("tr.space")) blanks += 1;
          if (frame === frames) {
            const gaps = times.slice(1).map((time, index) => time - times[index]);
            gaps.sort((a, b) => a - b);
            const at = (share) => gaps[Math.min(gaps.length - 1, Math.floor(gaps.length * share))];
            done({ rows, frames, blanks, median_ms: at(0.5), p95_ms: at(0.95) });
            return;
          }
          frame += 1;
          // Slow at first, as with a wheel, then in jumps of hundreds of rows, as with the scroll bar.
          table.scrollTop = frame < frames / 2 ? frame * 90 : (far * (frame - frames / 2)) / (frames / 2);
          requestAnimationFrame(next);
        };
        requestAnimationFrame(next);
      }),
    /** From the next click until the condition holds. */
    clock: (condition) => {
      awaited = condition;
      clicked = null;
      took = null;
      requestAnimationFrame(watch);
      return true;
    },
    took: () => took,
  };
})();
