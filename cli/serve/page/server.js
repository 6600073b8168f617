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

// Asks again while the server is busy, as it says.
async function ask(path, file, question, signal) {
  for (let tries = 0; ; tries++) {
    const form = new FormData();
    form.append("request", JSON.stringify(question));
    form.append("image", file);
    try {
      return await api(path, { method: "POST", body: form, signal });
    } catch (error) {
      if (error.status !== 503 || tries === 5) throw error;
      await pause(error.retryAfter || 1);
      signal?.throwIfAborted();
    }
  }
}

// Rows of a list: a button with a colour, a text and a number, and maybe one that removes.
export function rows(list, items, { pressed = -1, choose, remove }) {
  list.replaceChildren(...items.map(({ color, text, number = "", removeName }, at) => {
    const item = document.createElement("li");
    const button = Object.assign(document.createElement("button"), { type: "button", className: "row" });
    button.setAttribute("aria-pressed", String(at === pressed));
    const swatch = Object.assign(document.createElement("span"), { className: "swatch" });
    swatch.style.background = color;
    button.append(swatch, Object.assign(document.createElement("span"), { textContent: text }), Object.assign(document.createElement("span"), { textContent: number }));
    button.addEventListener("click", () => choose(at));
    item.append(button);
    if (remove) {
      const cross = Object.assign(document.createElement("button"), { type: "button", className: "remove", textContent: "✕" });
      cross.setAttribute("aria-label", removeName ?? `Remove ${text}`);
      cross.addEventListener("click", () => remove(at));
      item.append(cross);
    }
    return item;
  }));
}
