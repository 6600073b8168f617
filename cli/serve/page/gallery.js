// A labelled data set: its images, and the boxes of one of them to correct.

import { api, counted, detect, rows, segment } from "/page/server.js";
import { colorOf, Stage } from "/page/stage.js";

const $ = (id) => document.getElementById(id);

export class Gallery {
  constructor({ say, fail, thresholds, limits, hasClicks }) {
    Object.assign(this, { say, fail, thresholds, limits, hasClicks, isClicking: false, classes: [], images: [], total: 0, open: null, boxes: [], undo: [], isChanged: false, isVisible: false, turn: 0, keys: 0 });
    const isClicking = () => this.isClicking;
    this.stage = new Stage($("editor"), {
      get drawsOver() { return isClicking(); },
      mayDraw: () => colorOf(this.classId()),
      mayClick: isClicking,
      click: (point, isPositive) => this.click(point, isPositive),
      draw: (box) => (this.isClicking ? this.ask({ points: [], labels: [], box }) : this.add(box)),
      change: (number, box) => Object.assign(this.boxes[number], { box, moved: true, mask: undefined, asked: undefined }),
      commit: () => this.changed(),
      select: (number) => this.select(number),
      remove: (number) => this.remove(number),
    });
    $("gallery-more").addEventListener("click", () => this.load(this.images.length));
    $("gallery-back").addEventListener("click", () => this.leave());
    $("gallery-previous").addEventListener("click", () => this.step(-1));
    $("gallery-next").addEventListener("click", () => this.step(1));
    $("label-add").addEventListener("click", () => this.addInMiddle());
    $("label-remove").addEventListener("click", () => this.remove(this.stage.selected));
    $("label-undo").addEventListener("click", () => this.takeBack());
    $("label-save").addEventListener("click", () => this.save());
    $("label-detect").addEventListener("click", () => this.suggest());
    $("label-clicks").addEventListener("click", () => this.toggle());
    $("label-class").addEventListener("change", () => this.setClass());
    document.addEventListener("keydown", (event) => this.key(event));
    window.addEventListener("beforeunload", (event) => { if (this.isChanged) event.preventDefault(); });
  }

  visible(isVisible) {
    this.isVisible = isVisible;
    $("panel-labels").hidden = !isVisible || !this.open;
    $("label-clicks").hidden = !this.hasClicks();
    if (!isVisible) return;
    if (!this.images.length) this.begin();
    if (this.open) this.list();
    else this.say("Choose an image to correct.");
    this.stage.draw();
  }

  // The list, and the image of the page's address.
  async begin() {
    const id = new URLSearchParams(location.hash.slice(1)).get("gallery");
    const found = () => this.images.findIndex((image) => image.id === id);
    for (let from = 0; from === 0 || (id && found() < 0 && from < this.total); from = this.images.length) {
      if (!await this.load(from)) return;
    }
    if (!id) return;
    if (found() < 0) return this.fail("The gallery has no image of this address: it was removed, or this is another data set.");
    this.choose(found());
  }

  // The next images; whether there are some.
  async load(from) {
    try {
      const page = await api(`/v1/gallery?from=${from}`);
      this.images = from ? [...this.images, ...page.images] : page.images;
      [this.classes, this.total] = [page.classes, page.total];
    } catch (error) {
      this.fail(error.message);
      return false;
    }
    $("label-class").replaceChildren(...this.classes.map((name, id) => new Option(name, id)));
    $("gallery-count").textContent = `${counted(this.total, "image")}, ${counted(this.classes.length, "class", "classes")}`;
    $("gallery-more").hidden = this.images.length >= this.total;
    $("thumbnails").replaceChildren(...this.images.map((image, at) => {
      const item = document.createElement("li");
      const button = Object.assign(document.createElement("button"), { type: "button" });
      const small = Object.assign(document.createElement("img"), { loading: "lazy", alt: "", src: `/v1/gallery/${image.id}/thumbnail` });
      button.append(small, Object.assign(document.createElement("span"), { textContent: image.name }));
      button.addEventListener("click", () => this.choose(at));
      item.append(button);
      return item;
    }));
    return this.images.length > from;
  }

  // Whether clicks give masks.
  toggle(isClicking = !this.isClicking) {
    this.isClicking = isClicking;
    $("label-clicks").setAttribute("aria-pressed", String(isClicking));
    $("editor").setAttribute("aria-describedby", isClicking ? "editor-clicks" : "editor-keys");
    $("editor-clicks").hidden = !isClicking;
    $("editor-keys").hidden = isClicking;
    if (isClicking) this.say(this.stage.selected < 0 ? "Click on an object that has no box yet, or select a box first to mend its mask." : "Click on what belongs to the selected object; right click, or Alt and click, on what does not.");
    if (this.open) this.paint();
    $("editor").focus({ preventScroll: true });
  }

  // A click on the selected object, or on one that has no box yet.
  click([x, y], isPositive) {
    const { selected } = this.stage, one = this.boxes[selected];
    if (!one && !isPositive) return this.fail("Click on the object first, then on what is not part of it.");
    const { width, height } = this.open.labels;
    // The edge is not a pixel.
    const point = [Math.min(x, width - 0.01), Math.min(y, height - 0.01)].map((value) => Math.floor(value * 100) / 100);
    // The box of an object that was there says which one is meant.
    const before = one?.asked ?? { points: [], labels: [], ...(one ? { box: one.box } : {}) };
    this.ask({ ...before, points: [...before.points, point], labels: [...before.labels, Number(isPositive)] }, selected);
  }

  // Asks for the mask of an object, and gives it to a box or makes a new one.
  async ask(asked, number = -1) {
    if (this.isAsking) return;
    const { open } = this, key = this.boxes[number]?.key;
    this.isAsking = true;
    this.say("Looking…");
    try {
      const answer = await segment(open.blob, { objects: [asked] });
      if (this.open !== open) return;
      const [{ box, mask, predicted_iou: fits }] = answer.objects;
      const at = key === undefined ? this.boxes.length : this.boxes.findIndex((one) => one.key === key);
      if (!box || at < 0) return this.say("The mask has no pixels: try another click.");
      if (at === this.boxes.length) this.boxes.push({ key: ++this.keys, class_id: this.classId() });
      Object.assign(this.boxes[at], { box, mask, asked });
      this.changed(at);
      this.fail("");
      this.say(`The mask fits with ${fits.toFixed(2)}, ${Math.round(answer.timing_ms.total)} ms. Save keeps it.`);
    } catch (error) {
      this.fail(error.message);
    } finally {
      this.isAsking = false;
    }
  }

  mayLeave() {
    return !this.isChanged || window.confirm("The changes to this image are not saved. Leave it?");
  }

  async choose(at) {
    if (!this.images[at] || !this.mayLeave()) return;
    const image = this.images[at], turn = ++this.turn;
    this.fail("");
    this.say("");
    try {
      // In this order: if a run replaces the image in between, it is newer than the labels, and they cannot be saved.
      const labels = await api(`/v1/gallery/${image.id}`);
      const file = await fetch(`/v1/gallery/${image.id}/image`);
      if (!file.ok) throw new Error((await file.json()).error);
      const blob = await file.blob();
      const bitmap = await createImageBitmap(blob);
      // Another image was chosen meanwhile.
      if (turn !== this.turn) return;
      this.open = { at, image, labels, blob };
      $("gallery-list").hidden = true;
      $("gallery-editor").hidden = false;
      $("panel-labels").hidden = !this.isVisible;
      this.stage.show(bitmap, labels.width, labels.height);
      this.take(labels);
      $("editor").focus({ preventScroll: true });
    } catch (error) {
      this.fail(error.message);
    }
  }

  // Shows labels as the server has them.
  take(labels) {
    this.open.labels = labels;
    this.boxes = labels.instances.map(({ line, class_id, box, polygon }) => ({ key: ++this.keys, line, class_id, box, polygon }));
    [this.undo, this.isChanged] = [[], false];
    this.before = JSON.stringify(this.boxes);
    $("gallery-name").textContent = labels.name;
    $("gallery-previous").disabled = this.open.at === 0;
    $("gallery-next").disabled = this.open.at + 1 >= this.images.length;
    this.paint(-1);
  }

  classId() {
    return Number($("label-class").value) || 0;
  }

  // A file can have classes beyond the list.
  nameOf(id) {
    return this.classes[id] ?? `class ${id}`;
  }

  paint(selected = this.stage.selected) {
    const boxes = this.boxes.map((one) => ({ ...one, label: this.nameOf(one.class_id), color: colorOf(one.class_id), editable: true, polygon: one.moved || one.mask ? undefined : one.polygon }));
    const { points = [], labels = [] } = this.isClicking ? this.boxes[selected]?.asked ?? {} : {};
    this.stage.marks = points.map((at, number) => ({ at, color: labels[number] ? "#1f8a4c" : "#b3382c", text: labels[number] ? "+" : "−" }));
    this.stage.set(boxes, selected);
    this.list();
  }

  list() {
    const { selected } = this.stage;
    const box = (one) => one.box.map(Math.round).join(", ");
    rows($("found"), this.boxes.map((one) => ({ color: colorOf(one.class_id), key: one.key, text: this.nameOf(one.class_id), number: box(one), removeName: `Remove ${this.nameOf(one.class_id)} at ${box(one)}` })), {
      pressed: selected,
      choose: (at) => { this.stage.select(at); $("editor").focus(); },
      remove: (at) => this.remove(at),
    });
    $("panel-found").hidden = !this.open || !this.isVisible;
    $("found-heading").textContent = counted(this.boxes.length, "box", "boxes");
    $("exports").hidden = true;
    $("label-remove").disabled = selected < 0;
    $("label-undo").disabled = !this.undo.length;
    $("label-save").disabled = false;
    const { added, corrected } = this.open.labels;
    $("gallery-state").textContent = this.isChanged ? "Not saved" : added ? `${added} of new classes, not saved` : corrected ? "Corrected" : "";
    $("label-save").textContent = this.isChanged || added ? "Save" : corrected ? "Saved" : "Save as it is";
    $("editor").setAttribute("aria-label", `${this.open.image.name}, ${counted(this.boxes.length, "box", "boxes")}${selected >= 0 ? `, ${this.nameOf(this.boxes[selected].class_id)} at ${box(this.boxes[selected])} is selected` : ""}`);
  }

  select(number) {
    if (this.boxes[number]) $("label-class").value = this.boxes[number].class_id;
    // The clicks that are drawn are those on the selected object.
    if (this.isClicking) this.paint(number);
    else this.list();
  }

  // Remembers what was there before a change.
  changed(selected = this.stage.selected) {
    this.undo.push(this.before);
    this.before = JSON.stringify(this.boxes);
    this.isChanged = true;
    this.paint(selected);
  }

  takeBack() {
    const before = this.undo.pop();
    if (!before) return;
    this.boxes = JSON.parse(before);
    this.before = before;
    this.isChanged = true;
    this.paint(-1);
  }

  add(box) {
    this.boxes.push({ key: ++this.keys, class_id: this.classId(), box });
    this.changed(this.boxes.length - 1);
  }

  addInMiddle() {
    if (!this.open) return;
    if (this.isClicking) {
      this.stage.select(-1);
      return this.say("The next click begins another object.");
    }
    const { width, height } = this.open.labels;
    this.add([width * 0.4, height * 0.4, width * 0.6, height * 0.6]);
    $("editor").focus();
  }

  remove(number) {
    if (!this.boxes[number]) return;
    this.boxes.splice(number, 1);
    this.changed(-1);
  }

  setClass() {
    const one = this.boxes[this.stage.selected];
    if (!one || one.class_id === this.classId()) return;
    one.class_id = this.classId();
    this.changed();
  }

  // Adds what the detector finds and no box covers yet.
  async suggest() {
    const { open } = this;
    if (!open) return;
    this.say("Looking…");
    try {
      const most = this.limits().classes ?? this.classes.length;
      const found = [];
      for (let from = 0; from < this.classes.length; from += most) {
        const classes = this.classes.slice(from, from + most);
        const { detections } = await detect(open.blob, { ...this.thresholds(), classes, masks: false });
        if (this.open !== open) return;
        // Names that differ in case only are one class to the server, so its numbers are not ours.
        found.push(...detections.map(({ label, box }) => ({ class_id: this.classes.indexOf(label), box })));
      }
      const overlap = ([a, b, c, d], [x, y, z, w]) => {
        const common = Math.max(0, Math.min(c, z) - Math.max(a, x)) * Math.max(0, Math.min(d, w) - Math.max(b, y));
        return common / ((c - a) * (d - b) + (z - x) * (w - y) - common);
      };
      const known = [...this.boxes];
      const fresh = found.filter((one) => one.class_id >= 0 && !known.some((box) => box.class_id === one.class_id && overlap(box.box, one.box) > 0.5));
      fresh.forEach((one) => this.boxes.push({ key: ++this.keys, ...one }));
      if (fresh.length) this.changed(-1);
      this.say(fresh.length ? `${fresh.length} added: check them, then save.` : "Nothing new found.");
      this.fail("");
    } catch (error) {
      this.fail(error.message);
    }
  }

  async save() {
    const { open } = this;
    if (!open || this.isSaving) return;
    this.isSaving = true;
    try {
      const sent = JSON.stringify(this.boxes), keys = this.boxes.map((one) => one.key);
      const instances = this.boxes.map(({ line, class_id, box, mask }) => ({ ...(line === undefined || line === null ? {} : { line }), class_id, box, ...(mask ? { mask } : {}) }));
      const labels = await api(`/v1/gallery/${open.image.id}`, { method: "PUT", headers: { "content-type": "application/json" }, body: JSON.stringify({ version: open.labels.version, instances }) });
      if (this.open === open) {
        if (JSON.stringify(this.boxes) === sent) this.take(labels);
        else this.keep(labels, keys);
      }
      this.fail("");
      const isWhole = this.open !== open || !this.isChanged;
      this.say(isWhole ? "Saved. Later labelling leaves this image as it is." : "Saved, without what was changed meanwhile: save again.");
    } catch (error) {
      this.fail(error.message);
    } finally {
      this.isSaving = false;
    }
  }

  // Keeps what was drawn while a save was under way: boxes that were sent get their lines in the new file.
  keep(labels, keys) {
    this.open.labels = labels;
    const lines = new Map(labels.instances.map(({ line }, at) => [keys[at], line]));
    const moved = (boxes) => boxes.map((one) => ({ ...one, line: lines.get(one.key) }));
    const again = (text) => JSON.stringify(moved(JSON.parse(text)));
    // A box that is being dragged is the stage's as well.
    this.boxes.forEach((one) => { one.line = lines.get(one.key); });
    [this.undo, this.before] = [this.undo.map(again), again(this.before)];
    this.isChanged = true;
    this.list();
  }

  step(by) {
    if (this.open) this.choose(this.open.at + by);
  }

  leave() {
    if (!this.mayLeave()) return;
    this.turn++;
    if (this.isClicking) this.toggle(false);
    const at = this.open?.at ?? 0;
    [this.open, this.isChanged] = [null, false];
    $("gallery-list").hidden = false;
    $("gallery-editor").hidden = true;
    $("panel-labels").hidden = true;
    $("panel-found").hidden = true;
    this.say("Choose an image to correct.");
    $("thumbnails").querySelectorAll("button")[at]?.focus();
  }

  key(event) {
    if (!this.isVisible || !this.open) return;
    if ((event.ctrlKey || event.metaKey) && event.key === "s") {
      event.preventDefault();
      return this.save();
    }
    if ((event.ctrlKey || event.metaKey) && event.key === "z") return this.takeBack();
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const work = { n: () => this.addInMiddle(), "[": () => this.step(-1), "]": () => this.step(1), Escape: () => (this.isClicking ? this.toggle(false) : this.leave()), ...(this.hasClicks() ? { m: () => this.toggle() } : {}) }[event.key];
    if (work) {
      event.preventDefault();
      work();
    }
  }
}
