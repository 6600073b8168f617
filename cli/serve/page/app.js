// The page: what is asked, what was found, and the tabs.

import { Camera } from "/page/camera.js";
import { Clicks } from "/page/clicks.js";
import { asText, download, extension, stem } from "/page/formats.js";
import { Gallery } from "/page/gallery.js";
import { api, closest, detect, rows } from "/page/server.js";
import { annotated, colorOf, Stage } from "/page/stage.js";
import { Video } from "/page/video.js";

const $ = (id) => document.getElementById(id);
const DELAY = 350;

let about = { limits: {}, vocabulary: [] };
let view = "image";
let image = null; // { file, name, bitmap, width, height }
let examples = []; // { box, wanted, class }
let found = null; // { width, height, detections, timing_ms }
let highlighted = -1;
let timer = 0, request = null;

function say(text) {
  $("status").textContent = text;
}

function fail(text) {
  $("problem").textContent = text;
  $("problem").hidden = !text;
  if (text) say("");
}

const names = () => {
  const seen = new Set();
  return $("names").value.split(",").map((name) => name.trim().replace(/\s+/g, " ")).filter((name) => name && !seen.has(name.toLowerCase()) && seen.add(name.toLowerCase()));
};

const thresholds = () => ({ confidence: Number($("confidence").value), nms: Number($("overlap").value), masks: $("masks").checked && about.masks });

function question() {
  const classes = names();
  const exemplars = examples.map(({ box, wanted, class: of }) => ({ box: box.map((value) => Math.round(value * 100) / 100), wanted, ...(classes.includes(of) ? { class: of } : classes.length > 1 ? { class: classes[0] } : {}) }));
  return { classes, exemplars, ...thresholds() };
}

function changed() {
  $("confidence-value").value = Number($("confidence").value).toFixed(2);
  $("overlap-value").value = Number($("overlap").value).toFixed(2);
  try {
    sessionStorage.setItem("names", $("names").value);
  } catch { /* a private window */ }
  clearTimeout(timer);
  timer = setTimeout(view === "camera" ? () => camera.ask() : search, DELAY);
}

// What the built-in model does not know, as the program says it.
function unknown(classes) {
  const missing = about.vocabulary.length ? classes.filter((name) => !about.vocabulary.includes(name.toLowerCase())) : [];
  const hint = (name) => { const close = closest(name, about.vocabulary); return close ? `did you mean “${close}”?` : "its names are below."; };
  return missing.slice(0, 3).map((name) => ` The built-in model does not know “${name}”; ${hint(name)}`).join("");
}

async function search() {
  request?.abort();
  if (view !== "image" || !image) return;
  const asked = question();
  if (!asked.classes.length && !examples.some((example) => example.wanted)) {
    showFound(null);
    if (!clicks.isOn) say(examples.length ? "Add a wanted example, or a name." : about.clicks ? "Type what to find, or click on objects." : "Type what to find.");
    return;
  }
  request = new AbortController();
  const { signal } = request;
  say("Looking…");
  try {
    const result = await detect(image.file, asked, signal);
    if (signal.aborted) return;
    fail("");
    showFound(result);
    const count = result.detections.length;
    say(`${count === 0 ? "Nothing" : count} found in ${Math.round(result.timing_ms.total)} ms.${unknown(asked.classes)}`);
  } catch (error) {
    if (signal.aborted) return;
    showFound(null);
    fail(error.message);
  }
}

// The classes of the results: those that were asked for, then those of clicked objects that have other names.
function classes() {
  const asked = names();
  const searched = asked.length || !found ? asked : [...new Set(found.detections.map((one) => one.label))];
  return [...new Set([...searched, ...clicks.objects.map((_, at) => clicks.nameOf(at))])];
}

// What was found by name and by clicks, or null.
function results() {
  const clicked = view === "image" ? clicks.detections(classes()) : [];
  if (!clicked.length) return found;
  const { width, height } = image;
  return { width, height, timing_ms: clicks.timing, ...found, detections: [...(found?.detections ?? []), ...clicked] };
}

// The same with colours: an object has its own.
function shown() {
  const searched = found?.detections.length ?? 0, first = names().length;
  return (results()?.detections ?? []).map((one, number) => ({ ...one, color: colorOf(number < searched ? one.class_id : first + number - searched) }));
}

const shownBoxes = () => [
  ...examples.map(({ box, wanted }) => ({ box, label: wanted ? "+" : "−", color: wanted ? "#1f8a4c" : "#b3382c", dashed: true, editable: true })),
  ...clicks.boxes,
  ...shown().map((one, number) => ({ ...one, dim: highlighted >= 0 && highlighted !== number })),
];

function paint(selected = stage.selected) {
  const boxes = shownBoxes();
  stage.marks = clicks.marks;
  stage.set(highlighted >= 0 ? boxes.filter((one) => !one.dim) : boxes, highlighted >= 0 ? -1 : selected);
  const all = shown();
  $("stage").setAttribute("aria-label", image ? `${image.name}, ${all.length} found: ${[...new Set(all.map((one) => one.label))].join(", ") || "nothing"}${clicks.isOn ? `; ${clicks.object ? clicks.describe() : `a click begins object ${clicks.objects.length + 1}`}` : ""}` : "The image");
}

function showFound(result) {
  found = result;
  showResults();
}

function showResults() {
  highlighted = -1;
  $("panel-found").hidden = !results() || view === "gallery" || view === "video";
  listFound();
  if (view === "image") paint();
}

function listFound() {
  const items = shown().map(({ color, label, score }) => ({ color, text: label, number: score.toFixed(2) }));
  rows($("found"), items, {
    pressed: highlighted,
    choose: (at) => {
      highlighted = highlighted === at ? -1 : at;
      const buttons = [...$("found").querySelectorAll(".row")];
      buttons.forEach((button, number) => button.setAttribute("aria-pressed", String(number === highlighted)));
      if (view === "image") paint();
    },
  });
  $("found-heading").textContent = `Found ${items.length}`;
  $("exports").hidden = view !== "image";
}

function showExamples() {
  rows($("examples"), examples.map(({ wanted, class: of }) => ({ color: wanted ? "#1f8a4c" : "#b3382c", text: `${wanted ? "Wanted" : "Unwanted"} example${of ? ` of ${of}` : ""}` })), {
    pressed: stage.selected,
    choose: (at) => { clicks.toggle(false); highlighted = -1; paint(at); showExamples(); $("stage").focus(); },
    remove: removeExample,
  });
}

function removeExample(at) {
  examples.splice(at, 1);
  paint(-1);
  showExamples();
  changed();
}

// The box that is drawn next: "wanted", "unwanted" or none.
let drawing = "";

function setDrawing(kind) {
  drawing = drawing === kind ? "" : kind;
  if (drawing) clicks.toggle(false);
  showMode();
  if (drawing) say("Draw a box around the example, or press Enter for one in the middle.");
}

function showMode() {
  for (const one of ["wanted", "unwanted"]) $(`draw-${one}`).setAttribute("aria-pressed", String(drawing === one));
  $("click").setAttribute("aria-pressed", String(clicks.isOn));
  $("stage").classList.toggle("look", !drawing && !clicks.isOn && !examples.length);
  $("stage-keys").hidden = clicks.isOn;
  $("click-keys").hidden = !clicks.isOn;
  $("stage").setAttribute("aria-describedby", clicks.isOn ? "click-keys" : "stage-keys");
}

function addExample(box) {
  if (examples.length >= (about.limits.exemplars ?? 32)) return fail("There are too many examples.");
  const classes = names();
  examples.push({ box, wanted: drawing !== "unwanted", class: classes.length > 1 ? classes[0] : undefined });
  setDrawing(drawing);
  highlighted = -1;
  paint(examples.length - 1);
  showExamples();
  changed();
}

const stage = new Stage($("stage"), {
  drawsOver: true,
  mayDraw: () => (clicks.isOn || drawing === "wanted" ? "#1f8a4c" : drawing === "unwanted" ? "#b3382c" : null),
  mayClick: () => clicks.isOn,
  click: (point, isPositive) => clicks.add(point, isPositive),
  draw: (box) => (clicks.isOn ? clicks.addBox(box) : addExample(box)),
  change: (number, box) => { examples[number].box = box; },
  commit: changed,
  select: () => showExamples(),
  remove: removeExample,
});

const clicks = new Clicks({
  image: () => image,
  limits: () => about.limits,
  classes: names,
  say,
  fail,
  changed: () => { showMode(); showResults(); },
});

$("click").addEventListener("click", () => {
  if (drawing) setDrawing(drawing);
  stage.select(-1);
  clicks.toggle();
  if (clicks.isOn) $("stage").focus({ preventScroll: true });
});

$("stage").addEventListener("keydown", (event) => {
  if (clicks.isOn && image && clicks.key(event)) return;
  if (event.key === "Enter" && drawing && image) {
    const { width, height } = image;
    addExample([width * 0.35, height * 0.35, width * 0.65, height * 0.65]);
    event.preventDefault();
  } else if (event.key === "Escape" && drawing) {
    setDrawing(drawing);
  }
});

for (const kind of ["wanted", "unwanted"]) {
  $(`draw-${kind}`).addEventListener("click", () => {
    setDrawing(kind);
    if (drawing) $("stage").focus({ preventScroll: true });
  });
}

async function open(file) {
  if (!file) return;
  if (about.limits.bytes && file.size > about.limits.bytes - 4096) return fail(`The image has ${(file.size / 1e6).toFixed(1)} MB; the server takes ${(about.limits.bytes / 1e6).toFixed(0)} MB.`);
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    return fail(`${file.name}: the browser cannot show this file. Choose a JPEG, PNG or WebP.`);
  }
  fail("");
  examples = [];
  clicks.clear();
  found = null;
  image = { file, name: file.name || "image", bitmap, width: bitmap.width, height: bitmap.height };
  $("drop").hidden = true;
  $("image").hidden = false;
  stage.show(bitmap, bitmap.width, bitmap.height);
  setDrawing("");
  showExamples();
  show("image");
  clicks.show();
  changed();
}

for (const id of ["file", "file-again"]) {
  $(id).addEventListener("change", (event) => {
    open(event.target.files[0]);
    event.target.value = "";
  });
}
$("example").addEventListener("click", async () => {
  say("Drawing the example…");
  try {
    const response = await fetch("/page/example.png");
    if (!response.ok) throw new Error(`${response.status} ${response.statusText}`);
    const file = new File([await response.blob()], "example.png", { type: "image/png" });
    $("names").value = about.example.join(", ");
    await open(file);
    $("stage").focus({ preventScroll: true });
  } catch (error) {
    fail(error.message);
  }
});
const drop = $("main");
for (const kind of ["dragenter", "dragover"]) drop.addEventListener(kind, (event) => { event.preventDefault(); $("drop").classList.add("over"); });
for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => $("drop").classList.remove("over"));
drop.addEventListener("drop", (event) => { event.preventDefault(); const file = (kind) => [...event.dataTransfer.files].find((file) => file.type.startsWith(kind)); view === "video" ? video.upload(file("video/")) : open(file("image/")); });
document.addEventListener("paste", (event) => open([...(event.clipboardData?.files ?? [])].find((file) => file.type.startsWith("image/"))));

for (const id of ["names", "confidence", "overlap", "masks"]) $(id).addEventListener("input", changed);

$("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(asText($("format").value, image.name, results(), classes()));
    say("Copied.");
  } catch {
    fail("The browser does not let this page copy: download the file.");
  }
});
$("download").addEventListener("click", () => {
  const format = $("format").value;
  download(new Blob([asText(format, image.name, results(), classes())], { type: "text/plain" }), `${stem(image.name)}.${extension[format]}`);
});
$("download-image").addEventListener("click", async () => {
  download(await annotated(image.bitmap, image.width, image.height, shown()), `${stem(image.name)}-found.png`);
});

const camera = new Camera($("camera"), {
  question: () => ({ classes: names(), exemplars: [], ...thresholds() }),
  found: (message, rate) => {
    fail("");
    showFound(message);
    $("camera-rate").textContent = `${rate.toFixed(1)} frames a second`;
    $("camera").setAttribute("aria-label", `The camera's image, ${message.detections.length} found`);
  },
  said: say,
  failed: fail,
  ended: () => { $("camera-start").disabled = false; $("camera-stop").disabled = true; $("camera-rate").textContent = ""; },
});

async function startCamera() {
  fail("");
  $("camera-start").disabled = true;
  try {
    await camera.start($("camera-which").value);
    $("camera-start").disabled = true;
    $("camera-stop").disabled = false;
    say(names().length ? "" : "Type what to find.");
    const devices = (await navigator.mediaDevices.enumerateDevices()).filter((device) => device.kind === "videoinput");
    const chosen = $("camera-which").value;
    $("camera-which").replaceChildren(new Option("Default", ""), ...devices.map((device, at) => new Option(device.label || `Camera ${at + 1}`, device.deviceId)));
    $("camera-which").value = chosen;
  } catch (error) {
    camera.stop();
    fail(error.name === "NotAllowedError" ? "The browser was told not to give the camera to this page." : error.message);
  }
}
$("camera-start").addEventListener("click", startCamera);
$("camera-stop").addEventListener("click", () => camera.stop());
$("camera-which").addEventListener("change", () => { if (camera.stream) startCamera(); });

const video = new Video({ say, fail, about: () => about });

const gallery = new Gallery({ say, fail, thresholds, limits: () => about.limits, hasClicks: () => about.clicks });

function show(next) {
  view = next;
  for (const one of ["image", "video", "camera", "gallery"]) {
    const tab = $(`tab-${one}`), isShown = one === view;
    tab.setAttribute("aria-selected", String(isShown));
    tab.tabIndex = isShown ? 0 : -1;
    $(`view-${one}`).hidden = !isShown;
  }
  if (view !== "camera") camera.stop();
  $("panel-ask").hidden = view === "gallery" || view === "video";
  $("examples").hidden = view !== "image";
  if (view !== "image") clicks.toggle(false);
  say("");
  fail("");
  showFound(null);
  gallery.visible(view === "gallery");
  video.visible(view === "video");
  if (view === "image") changed();
}

const tabs = [...document.querySelectorAll("[role=tab]")];
tabs.forEach((tab) => {
  tab.addEventListener("click", () => show(tab.id.slice(4)));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const shown = tabs.filter((one) => !one.hidden);
    const next = shown[(shown.indexOf(tab) + step + shown.length) % shown.length];
    next.focus();
    next.click();
    event.preventDefault();
  });
});

async function begin() {
  try {
    about = await api("/v1/about");
  } catch (error) {
    return fail(error.message);
  }
  $("about").textContent = `${about.model === "built-in" ? "Built-in model" : about.model} · ${about.engine}`;
  $("confidence").value = about.confidence;
  $("overlap").value = about.nms;
  if (!about.masks) Object.assign($("masks"), { checked: false, disabled: true });
  $("tab-gallery").hidden = !about.gallery;
  $("click").hidden = !about.clicks;
  $("tab-video").hidden = !about.sessions;
  if (about.vocabulary.length) {
    $("vocabulary").hidden = false;
    $("vocabulary-names").replaceChildren(...about.vocabulary.map((name) => {
      const item = document.createElement("li");
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: name });
      button.addEventListener("click", () => {
        const all = names();
        $("names").value = (all.includes(name) ? all.filter((one) => one !== name) : [...all, name]).join(", ");
        changed();
      });
      item.append(button);
      return item;
    }));
  }
  try {
    $("names").value = sessionStorage.getItem("names") ?? "";
  } catch { /* a private window */ }
  if (about.sessions && location.hash.startsWith("#session=")) show("video");
  else if (about.gallery && location.hash.startsWith("#gallery")) show("gallery");
  else changed();
}

begin();
