// The page: a source, the classes, what was found.

import { draw } from "./draw.js";
import { Engine } from "./engine.js";
import { ExampleBoxes } from "./examples.js";
import { Still, Video } from "./source.js";

const $ = (id) => document.getElementById(id);
const view = $("view");
const context = view.getContext("2d");
// A model needs about its own size again while it runs, and the memory of a tab ends at 4 GB.
const LARGEST_MODEL = 2e9;

const engine = new Engine((share) => ($("progress").value = share));
const state = {
  source: undefined,
  /** The frame on the canvas, and what was found in it. */
  shown: undefined,
  frameNumber: 0,
  found: { detections: [] },
  isOpen: false,
  isPaused: false,
  isRunning: false,
  /** Whether the frame on the canvas has to be searched again. */
  isStale: false,
  ownFiles: undefined,
  /** When the last frames were done. */
  done: [],
  summarized: 0,
};

// ---- messages ----

function say(text, kind = "info") {
  $("status").textContent = text;
  $("status").dataset.kind = kind;
}

function fail(error) {
  say(error.message, "error");
  $("progress").hidden = true;
  if (!error.fatal) return;
  state.source?.close();
  state.source = undefined;
  openModel().then(() => say(`${error.message}; the model was loaded again`, "error"), fail);
}

const attempt = (work) => async (...given) => {
  try {
    await work(...given);
  } catch (error) {
    fail(error);
  }
};

// ---- the model ----

async function openModel() {
  state.isOpen = false;
  $("progress").hidden = false;
  say("Loading the model…");
  const [masks, confidence] = [$("masks").checked, Number($("threshold").value)];
  const opened = await engine.open({ files: state.ownFiles, masks, confidence });
  $("progress").hidden = true;
  const name = state.ownFiles ? `Your model, ${state.ownFiles.folder}` : "Built-in model";
  $("model").textContent =
    `${name}: ${(opened.bytes / 1e6).toFixed(1)} MB, ${opened.imgsz} px, ${opened.engine}` +
    (opened.masks ? "" : "; it was exported without masks");
  $("built-in").hidden = !state.ownFiles;
  if (!$("vocabulary").children.length) listVocabulary(opened.vocabulary);
  state.isOpen = true;
  await applyPrompts();
  if (!state.source) say("Ready. Choose a source.");
}

async function openFolder(list) {
  const manifest = [...list].find((file) => file.name === "model.json");
  if (!manifest) throw new Error("this folder has no model.json: expected one that `ocelli export` wrote");
  const folder = manifest.webkitRelativePath.slice(0, -"model.json".length);
  const files = new Map();
  for (const file of list) {
    if (file.webkitRelativePath.startsWith(folder)) files.set(file.webkitRelativePath.slice(folder.length), file);
  }
  const bytes = [...files.values()].reduce((sum, file) => sum + file.size, 0);
  if (bytes > LARGEST_MODEL) {
    throw new Error(`this model has ${(bytes / 1e9).toFixed(1)} GB, and a tab holds models of up to 2 GB: export a smaller one`);
  }
  const before = state.ownFiles;
  state.ownFiles = Object.assign(files, { folder: folder.replace(/\/$/, "") });
  try {
    await openModel();
  } catch (error) {
    state.ownFiles = before;
    await openModel();
    throw error;
  }
}

// ---- the classes ----

function names() {
  const parts = $("names").value.split(/[,\n]/).map((name) => name.trim().replace(/\s+/g, " "));
  return [...new Set(parts.filter(Boolean))];
}

async function applyPrompts() {
  if (!state.isOpen) return;
  const wanted = names();
  boxes.keepClasses(wanted);
  const prompts = wanted.map((phrase) => ({ phrase, exemplars: boxes.of(phrase) }));
  const shown = boxes.of(ExampleBoxes.NEW_CLASS);
  if (shown.some((example) => example.wanted)) prompts.push({ label: "like the example", exemplars: shown });
  listClasses(prompts);
  if (!prompts.length) throw new Error("no names: write at least one, such as dog");
  await engine.set("prompts", { prompts });
  if (boxes.list.length && state.source?.isLive) {
    const bitmap = await createImageBitmap(boxes.frame);
    await engine.set("keep", { bitmap });
    bitmap.close();
  }
  if ($("status").dataset.kind === "error") say("");
  search();
}

function listClasses(prompts) {
  const chips = prompts.map((prompt) => {
    const chip = document.createElement("li");
    chip.append(prompt.label ?? prompt.phrase, " ", document.createElement("b"));
    return chip;
  });
  $("classes").replaceChildren(...chips);
  const chosen = $("example-class").value;
  const options = names().map((name) => new Option(name, name));
  $("example-class").replaceChildren(...options, new Option("a new class: what the box shows", ExampleBoxes.NEW_CLASS));
  if ([...$("example-class").options].some((option) => option.value === chosen)) $("example-class").value = chosen;
}

function listVocabulary(vocabulary) {
  const items = vocabulary.map((name) => {
    const [item, button] = [document.createElement("li"), document.createElement("button")];
    Object.assign(button, { type: "button", textContent: name });
    button.addEventListener("click", attempt(async () => {
      $("names").value = [...names(), name].join(", ");
      await applyPrompts();
    }));
    item.append(button);
    return item;
  });
  $("vocabulary").replaceChildren(...items);
}

// ---- the loop ----

/** Searches the frame on the canvas again, or starts the loop for a new source. */
function search() {
  state.isStale = true;
  run().catch((error) => {
    state.isRunning = false;
    fail(error);
  });
}

/** Searches a frame: a new one of a live source, otherwise the one on the canvas. */
async function begin(source, isNew) {
  const bitmap = await (isNew ? source.frame() : createImageBitmap(state.shown));
  const frame = { source, isNew, result: undefined };
  // An error is for whoever awaits the result.
  if (state.isOpen && source === state.source) (frame.result = engine.detect(bitmap)).catch(() => {});
  else bitmap.close();
  return frame;
}

async function run() {
  if (state.isRunning) return;
  state.isRunning = true;
  const moves = () => state.source?.isLive && !state.isPaused && !boxes.isDrawing;
  // Frames that are searched, the oldest first: those of a live source as many at once as there are threads.
  const begun = [];
  while (begun.length || (state.source && state.isOpen && (state.isStale || moves()))) {
    const isWanted = state.source && state.isOpen && (state.isStale ? !begun.length : moves());
    if (isWanted && begun.length < engine.width) {
      state.isStale = false;
      begun.push(await begin(state.source, !state.shown || moves()));
      if (moves()) continue;
    }
    const { source, isNew, result: searched } = begun.shift();
    const result = await searched;
    if (result && source.isLive && isNew && $("tracks").checked) result.tracks = await engine.track(result.detections);
    if (!result || source !== state.source) {
      result?.bitmap.close();
      continue;
    }
    state.shown?.close();
    if (isNew) state.frameNumber += 1;
    [state.shown, state.found] = [result.bitmap, result];
    render();
    report(result);
  }
  state.isRunning = false;
}

function render() {
  if (state.shown) draw(context, state.shown, state.found, boxes.visible(), boxes.cross);
}

function report({ detections, ms }) {
  const now = performance.now();
  state.done = [...state.done.filter((time) => now - time < 2000), now];
  const [first] = state.done;
  const rate = state.done.length > 3 ? ((state.done.length - 1) * 1000) / (now - first) : undefined;
  $("fps").textContent = state.source.isLive && rate ? rate.toFixed(1) : "–";
  $("latency").textContent = `${ms.toFixed(0)} ms`;
  $("count").textContent = String(detections.length);
  const counts = new Map();
  for (const { class_id: id } of detections) counts.set(id, (counts.get(id) ?? 0) + 1);
  [...$("classes").children].forEach((chip, id) => (chip.querySelector("b").textContent = counts.get(id) ?? 0));
  detections.forEach(({ class_id: id, color }) => $("classes").children[id]?.style.setProperty("--color", color));
  // Screen readers need no news at every frame.
  if (state.source.isLive && now - state.summarized < 3000) return;
  state.summarized = now;
  const parts = [...$("classes").children].map((chip, id) => [counts.get(id) ?? 0, chip.firstChild.data]);
  const text = parts.filter(([count]) => count).map(([count, name]) => `${count} ${name}`).join(", ");
  $("summary").textContent = text ? `Found ${text}.` : "Nothing was found.";
  view.setAttribute("aria-label", `Image, ${view.width} by ${view.height} pixels, with what was found`);
}

// ---- sources ----

async function show(opening) {
  const source = await opening;
  state.source?.close();
  boxes.clear();
  listExamples();
  state.shown?.close();
  Object.assign(state, { source, shown: undefined, found: { detections: [] }, done: [], summarized: 0 });
  setPaused(false);
  $("drop").dataset.state = "full";
  $("pause").hidden = !source.isLive;
  $("save").disabled = false;
  say("");
  await applyPrompts();
}

function open(blob) {
  return show(blob.type.startsWith("video/") ? Video.file(blob) : Still.open(blob));
}

function setPaused(paused) {
  state.isPaused = paused;
  $("pause").setAttribute("aria-pressed", paused);
  $("pause").textContent = paused ? "Continue" : "Pause";
  if (state.source?.isLive) state.source.paused = paused || boxes.isDrawing;
}

async function save() {
  const blob = await new Promise((resolve) => view.toBlob(resolve, "image/png"));
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: "found.png" });
  link.click();
  URL.revokeObjectURL(link.href);
}

// ---- examples ----

const boxes = new ExampleBoxes(view, {
  frame: () => state.shown,
  frameNumber: () => state.frameNumber,
  className: () => $("example-class").value,
  redraw: render,
  changed: attempt(async () => {
    listExamples();
    await applyPrompts();
  }),
});

function listExamples() {
  const rows = boxes.list.map((example, index) => {
    const [row, button] = [document.createElement("li"), document.createElement("button")];
    const name = example.name === ExampleBoxes.NEW_CLASS ? "new class" : example.name;
    const text = `${example.wanted ? "wanted" : "unwanted"}: ${name}, ${example.box.map(Math.round).join(" ")}`;
    row.style.setProperty("--color", example.wanted ? "#0b7a3f" : "#c2200f");
    Object.assign(button, { type: "button", textContent: "Remove" });
    button.setAttribute("aria-label", `Remove ${text}`);
    button.addEventListener("click", () => boxes.remove(index));
    row.append(text, button);
    return row;
  });
  $("examples").replaceChildren(...rows);
}

function setDrawing(mode) {
  boxes.setMode(mode);
  $("drawing-help").hidden = !boxes.isDrawing;
  if (boxes.isDrawing && !state.source) say("Choose an image or a video first, then draw boxes in it.");
  setPaused(state.isPaused);
  search();
}

// ---- controls ----

const on = (id, event, work) => $(id).addEventListener(event, attempt(work));

let typing;
on("names", "input", async () => {
  clearTimeout(typing);
  typing = setTimeout(attempt(applyPrompts), 300);
});
on("threshold", "input", async () => {
  const confidence = Number($("threshold").value);
  $("threshold-value").textContent = confidence.toFixed(2);
  if (!state.isOpen) return;
  await engine.set("confidence", { confidence });
  search();
});
on("masks", "change", openModel);
on("tracks", "change", async () => search());
on("camera", "click", () => show(Video.camera()));
on("open", "click", async () => $("file").click());
on("file", "change", async () => {
  const [file] = $("file").files;
  if (file) await open(file);
  $("file").value = "";
});
on("scene", "change", async () => {
  if ($("scene").value) await open(await (await fetch(`scenes/${$("scene").value}.png`)).blob());
});
on("pause", "click", async () => {
  setPaused(!state.isPaused);
  search();
});
on("save", "click", save);
on("own-model", "click", async () => $("folder").click());
on("folder", "change", async () => {
  const list = [...$("folder").files];
  $("folder").value = "";
  if (list.length) await openFolder(list);
});
on("built-in", "click", async () => {
  state.ownFiles = undefined;
  await openModel();
});
$("controls").addEventListener("submit", (event) => event.preventDefault());
for (const radio of document.querySelectorAll("[name=draw]")) {
  radio.addEventListener("change", () => setDrawing(radio.value));
}

const drop = $("drop");
for (const event of ["dragenter", "dragover"]) {
  drop.addEventListener(event, (over) => {
    over.preventDefault();
    drop.toggleAttribute("data-over", true);
  });
}
drop.addEventListener("dragleave", () => drop.toggleAttribute("data-over", false));
drop.addEventListener("drop", attempt(async (dropped) => {
  dropped.preventDefault();
  drop.toggleAttribute("data-over", false);
  const [file] = dropped.dataTransfer.files;
  if (!file || !/^(image|video)\//.test(file.type)) throw new Error("expected an image or a video file");
  await open(file);
}));

attempt(openModel)();
