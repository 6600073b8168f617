// What the page asks the server, and how lists are shown.

export async function api(path, options = {}) {
  const response = await fetch(path, options);
  if (response.ok) return response.json();
  const problem = await response.json().catch(() => ({}));
  const error = new Error(problem.error || `${response.status} ${response.statusText}`);
  error.status = response.status;
  error.retryAfter = Number(response.headers.get("retry-after")) || 0;
  throw error;
}

const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

export const detect = (file, question, signal) => ask("/v1/detect", file, question, signal);
export const segment = (file, shown, signal) => ask("/v1/segment", file, shown, signal);

function ask(path, file, question, signal) {
  const form = new FormData();
  form.append("request", JSON.stringify(question));
  form.append("image", file);
  return patiently(path, { method: "POST", body: form, signal });
}

// Asks again while the server is busy, as it says.
export async function patiently(path, options) {
  for (let tries = 0; ; tries++) {
    try {
      return await api(path, options);
    } catch (error) {
      if (error.status !== 503 || tries === 5) throw error;
      await pause(error.retryAfter || 1);
      options.signal?.throwIfAborted();
    }
  }
}

export const counted = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

function newRow(removes) {
  const item = document.createElement("li");
  const button = Object.assign(document.createElement("button"), { type: "button", className: "row" });
  button.append(Object.assign(document.createElement("span"), { className: "swatch" }), document.createElement("span"), document.createElement("span"));
  button.addEventListener("click", () => item.choose());
  item.append(button);
  if (removes) {
    const cross = Object.assign(document.createElement("button"), { type: "button", className: "remove", textContent: "✕" });
    cross.addEventListener("click", () => item.drop());
    item.append(cross);
  }
  return item;
}

// Rows of a list: a button with a colour, a text and a number, and maybe one that removes. A row stays the same element as long as
// its key, by default its place, is there: it keeps the focus and a press that lasts.
export function rows(list, items, { pressed = -1, choose, remove }) {
  const keys = items.map(({ key }, at) => String(key ?? at)), known = new Map([...list.children].map((item) => [item.dataset.key, item]));
  const focused = document.activeElement, place = [...list.children].findIndex((item) => item.contains(focused));
  for (const [key, item] of known) {
    if (keys.includes(key) && Boolean(item.children[1]) === Boolean(remove)) continue;
    item.remove();
    known.delete(key);
  }
  items.forEach(({ color, text, number = "", removeName }, at) => {
    const item = known.get(keys[at]) ?? newRow(Boolean(remove)), [button, cross] = item.children;
    item.dataset.key = keys[at];
    Object.assign(item, { choose: () => choose(at), drop: () => remove(at) });
    button.setAttribute("aria-pressed", String(at === pressed));
    button.children[0].style.background = color;
    button.children[1].textContent = text;
    button.children[2].textContent = number;
    cross?.setAttribute("aria-label", removeName ?? `Remove ${text}`);
    if (list.children[at] !== item) list.insertBefore(item, list.children[at] ?? null);
  });
  // The row that had the focus is gone: its neighbour has it.
  if (place >= 0 && !list.contains(document.activeElement)) {
    const next = list.children[Math.min(place, items.length - 1)];
    next?.querySelector(focused.className === "remove" ? ".remove" : ".row").focus();
  }
}

// The name that was meant, if any, as the program says it: one that is spelled almost like it; else one whose words are in it ("red car" is a
// car), the longest and last; else one of which two letters in three agree. Exchanged neighbours count once.
export function closest(name, known) {
  const likeness = (other) => {
    const [a, b] = [name.toLowerCase(), other], d = Array.from({ length: a.length + 1 }, (_, at) => [at]);
    for (let j = 0; j <= b.length; j++) d[0][j] = j;
    for (let i = 1; i <= a.length; i++) {
      for (let j = 1; j <= b.length; j++) {
        d[i][j] = Math.min(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + Number(a[i - 1] !== b[j - 1]));
        if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) d[i][j] = Math.min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
    return 1 - d[a.length][b.length] / Math.max(a.length, b.length, 1);
  };
  const [best, most] = known.reduce(([best, most], other) => { const now = likeness(other); return now > most ? [other, now] : [best, most]; }, ["", 0]);
  if (most >= 0.9) return best;
  const words = name.toLowerCase().split(/\s+/).filter(Boolean);
  const last = (parts) => words.findLastIndex((_, at) => parts.every((part, i) => part === words[at + i]));
  const named = known.map((other) => [other.split(" ").length, last(other.split(" ")), other]).filter(([, at]) => at >= 0);
  named.sort(([a, i], [b, j]) => b - a || j - i);
  return named[0]?.[2] ?? (most >= 0.65 ? best : null);
}
