// Objects that are shown by clicks and boxes: what was clicked, the masks that came back, and how a change is taken back.

import { counted, rows, segment } from "/page/server.js";
import { boxOf, colorOf, movedCursor } from "/page/stage.js";

const $ = (id) => document.getElementById(id);
const POSITIVE = "#1f8a4c", NEGATIVE = "#b3382c";
const round = (value) => Math.round(value * 100) / 100;
const shownBy = ({ points, box }) => `${counted(points.length, "click")}${box ? ", a box" : ""}`;
const isShown = (one) => one.box || one.labels.includes(1);

export class Clicks {
  // `on` has image(), limits(), classes(), say(text), fail(text) and changed(), after which everything is painted again.
  constructor(on) {
    Object.assign(this, { on, isOn: false, keys: 0 });
    this.clear();
    $("click-new").addEventListener("click", () => { this.startNew(); $("stage").focus({ preventScroll: true }); });
    $("click-undo").addEventListener("click", () => this.undo());
    $("object-name").addEventListener("input", (event) => this.rename(event.target.value));
    document.addEventListener("keydown", (event) => this.shortcut(event));
  }

  // For another image.
  clear() {
    this.request?.abort();
    // Objects are replaced, not changed, so that `history` can keep them.
    Object.assign(this, { objects: [], active: -1, history: [], cursor: null, corner: null, timing: {} });
  }

  toggle(isOn = !this.isOn) {
    Object.assign(this, { isOn, cursor: null, corner: null });
    if (!isOn) {
      this.request?.abort();
      return this.show();
    }
    this.on.say("Click on an object. Right click, or Alt and click, on what is not part of it.");
    this.ask();
  }

  get object() {
    return this.objects[this.active];
  }

  nameOf(at) {
    return this.objects[at]?.name || "object";
  }

  // What was found, as a list of detections. An object has the class of its name, a new one if no class has this name.
  detections(classes) {
    return this.objects.flatMap((one, at) => {
      if (!one.found?.box) return [];
      const label = this.nameOf(at);
      return [{ class_id: classes.indexOf(label), label, score: one.found.predicted_iou, box: one.found.box, mask: one.found.mask }];
    });
  }

  // The boxes and clicks to draw.
  get boxes() {
    return this.isOn && this.object?.box ? [{ box: this.object.box, label: "", color: POSITIVE, dashed: true }] : [];
  }

  get marks() {
    if (!this.isOn) return [];
    const marks = this.objects.flatMap((one, at) => one.points.map((point, number) => ({ at: point, color: one.labels[number] ? POSITIVE : NEGATIVE, text: one.labels[number] ? "+" : "−", dim: at !== this.active })));
    if (this.corner) marks.push({ at: this.corner, color: POSITIVE, text: "□" });
    return this.cursor ? [...marks, { at: this.cursor, isCursor: true }] : marks;
  }

  startNew() {
    this.active = -1;
    this.corner = null;
    this.on.say(`The next click begins object ${this.objects.length + 1}.`);
    this.show();
  }

  select(at) {
    this.active = at;
    this.show();
  }

  add(point, isPositive) {
    const count = this.objects.reduce((sum, one) => sum + one.points.length, 0);
    if (count >= (this.on.limits().points ?? 256)) return this.on.fail("There are too many clicks.");
    const { width, height } = this.on.image();
    // The edge is not a pixel.
    const [x, y] = [Math.min(point[0], width - 0.01), Math.min(point[1], height - 0.01)].map((value) => Math.floor(value * 100) / 100);
    this.change((one) => ({ ...one, points: [...one.points, [x, y]], labels: [...one.labels, Number(isPositive)] }));
  }

  addBox(box) {
    this.change((one) => ({ ...one, box: box.map(round) }));
  }

  // Changes the active object, or begins one.
  change(work) {
    if (!this.object && this.objects.length >= (this.on.limits().objects ?? 32)) return this.on.fail("There are too many objects.");
    this.remember();
    if (!this.object) {
      this.objects = [...this.objects, { key: ++this.keys, name: "", points: [], labels: [], box: null, found: null }];
      this.active = this.objects.length - 1;
    }
    this.objects = this.objects.map((one, at) => (at === this.active ? { ...work(one), isStale: true } : one));
    this.ask();
  }

  rename(name) {
    if (!this.object) return;
    this.objects = this.objects.map((one, at) => (at === this.active ? { ...one, name: name.trim().replace(/\s+/g, " ") } : one));
    this.show();
  }

  remove(at) {
    this.remember();
    this.objects = this.objects.filter((_, number) => number !== at);
    this.active = -1;
    this.on.say("Removed.");
    this.ask();
  }

  remember() {
    this.history.push({ objects: this.objects, active: this.active });
  }

  undo() {
    const before = this.history.pop();
    if (!before) return;
    Object.assign(this, before);
    this.on.say(this.object ? `Taken back: ${this.describe()}` : "Taken back.");
    this.ask();
  }

  describe() {
    const one = this.object;
    const mask = one.isStale || !one.found ? "" : one.found.box ? `, fits with ${one.found.predicted_iou.toFixed(2)}` : ", no pixels: try other clicks";
    return `object ${this.active + 1}, ${shownBy(one)}${mask}.`;
  }

  // Asks for the masks of the objects that changed.
  async ask() {
    this.request?.abort();
    this.show();
    const asked = this.objects.filter((one) => one.isStale && isShown(one));
    if (!asked.length) {
      if (this.object && !isShown(this.object)) this.on.say("Click on the object, too, or drag a box around it.");
      return;
    }
    const request = this.request = new AbortController();
    this.on.say("Looking…");
    try {
      const objects = asked.map(({ points, labels, box }) => ({ points, labels, ...(box ? { box } : {}) }));
      const answer = await segment(this.on.image().file, { objects }, request.signal);
      if (request.signal.aborted) return;
      const found = new Map(answer.objects.map((one) => [asked[one.object].key, one]));
      this.objects = this.objects.map((one) => (found.has(one.key) ? { ...one, found: found.get(one.key), isStale: false } : one));
      this.timing = answer.timing_ms;
      this.on.fail("");
      this.on.say(`${this.object ? `Found ${this.describe()}` : "Found."} ${Math.round(answer.timing_ms.total)} ms.`);
      this.show();
    } catch (error) {
      if (!request.signal.aborted) this.on.fail(error.message);
    }
  }

  show() {
    $("click-bar").hidden = !this.isOn;
    $("panel-objects").hidden = !this.isOn || !this.objects.length;
    $("click-undo").disabled = !this.history.length;
    $("click-new").setAttribute("aria-pressed", String(this.isOn && !this.object));
    $("object-name").disabled = !this.object;
    if (document.activeElement !== $("object-name")) $("object-name").value = this.object?.name ?? "";
    const first = this.on.classes().length;
    rows($("objects"), this.objects.map((one, at) => ({ key: one.key, color: colorOf(first + at), text: `${at + 1} ${this.nameOf(at)}`, number: shownBy(one), removeName: `Remove object ${at + 1}` })), {
      pressed: this.active,
      choose: (at) => { this.select(at); $("stage").focus({ preventScroll: true }); },
      remove: (at) => this.remove(at),
    });
    this.on.changed();
  }

  shortcut(event) {
    if (!this.isOn || $("view-image").hidden || $("image").hidden || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const isControl = event.ctrlKey || event.metaKey;
    if (isControl && event.key.toLowerCase() === "z" && !event.shiftKey) {
      event.preventDefault();
      this.undo();
    } else if (!isControl && !event.altKey && event.key.toLowerCase() === "n") {
      event.preventDefault();
      this.startNew();
    }
  }

  // Keys on the image: arrows move a cursor, Enter clicks. Returns whether the key was one of these.
  key(event) {
    const image = this.on.image();
    const at = this.cursor ?? [image.width / 2, image.height / 2];
    const moved = movedCursor(event, at, image);
    if (moved) {
      this.cursor = moved;
      this.on.say(`Cursor at ${moved.join(", ")}.`);
      this.on.changed();
    } else if (event.key === "Enter" || event.key === " ") {
      this.cursor = at;
      this.add(at, !(event.shiftKey || event.altKey));
    } else if (event.key.toLowerCase() === "b" && !event.ctrlKey && !event.metaKey && !event.altKey) {
      this.cursor = at;
      this.boxCorner(at);
    } else if (event.key === "Escape") {
      this.toggle(false);
    } else {
      return false;
    }
    event.preventDefault();
    return true;
  }

  // Two corners make a box.
  boxCorner([x, y]) {
    const from = this.corner;
    this.corner = from ? null : [x, y];
    if (!from) {
      this.on.say("One corner of the box is here: move the cursor, then press B again.");
      return this.on.changed();
    }
    const box = boxOf(from, [x, y]);
    if (!box) {
      this.on.say("The box has no area.");
      return this.on.changed();
    }
    this.addBox(box);
  }
}
