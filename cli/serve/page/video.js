// A video: objects that are found by a word or by clicks, followed through it, corrected and removed.

import { api, counted, patiently, rows } from "/page/server.js";
import { download } from "/page/formats.js";
import { boxOf, colorOf, movedCursor, Stage } from "/page/stage.js";

const $ = (id) => document.getElementById(id);
const POSITIVE = "#1f8a4c", NEGATIVE = "#b3382c";
// Milliseconds between two looks at a session that somebody else works on.
const LOOK = 1000;
const GONE = "The session has ended: it was closed, or nobody used it. Open the video again.";
const json = (method, body) => ({ method, headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

export class Video {
  // `on` has say(text), fail(text) and about(), the server's description.
  constructor(on) {
    Object.assign(this, { on, isVisible: false });
    this.forget();
    this.stage = new Stage($("video-stage"), {
      mayDraw: () => (this.mayWork ? POSITIVE : null),
      mayClick: () => this.mayWork,
      drawsOver: true,
      click: (point, isPositive) => this.click(point, isPositive),
      draw: (box) => this.box(box),
    });
    $("video-file").addEventListener("change", (event) => { this.upload(event.target.files[0]); event.target.value = ""; });
    $("video-open").addEventListener("click", () => this.open(json("POST", { video: $("video-name").value }), $("video-name").value));
    $("video-close").addEventListener("click", () => this.close());
    $("video-link").addEventListener("click", () => this.copyLink());
    $("video-find").addEventListener("submit", (event) => { event.preventDefault(); this.find(); });
    $("video-new").addEventListener("click", () => this.select(null));
    $("video-undo").addEventListener("click", () => this.undo());
    $("video-follow").addEventListener("click", () => this.follow());
    $("video-cancel").addEventListener("click", () => this.run?.abort());
    $("video-play").addEventListener("click", () => this.play());
    $("video-frame").addEventListener("input", (event) => this.show(Number(event.target.value)));
    $("video-object").addEventListener("change", (event) => this.rename(event.target.value));
    for (const button of document.querySelectorAll("[data-export]")) button.addEventListener("click", () => this.save(button.dataset.export, button.dataset.file));
    $("video-stage").addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("keydown", (event) => this.shortcut(event));
  }

  forget() {
    this.run?.abort();
    clearTimeout(this.looking);
    this.stopPlaying();
    // `frames` has the results by number; `clicks` those on an object of a frame, by "object/frame".
    Object.assign(this, { state: null, frames: new Map(), clicks: new Map(), last: [], at: 0, object: null, cursor: null, corner: null, isBusy: false, drawn: null, run: null, revision: 0, started: 0, turn: 0 });
  }

  // A click is answered by one request at a time.
  get mayWork() {
    return Boolean(this.state) && !this.isBusy && !this.isRunning;
  }

  get isRunning() {
    return Boolean(this.run) || Boolean(this.state?.running);
  }

  visible(isVisible) {
    this.isVisible = isVisible;
    $("panel-video").hidden = !isVisible || !this.state;
    if (!isVisible) return this.stopPlaying();
    if (!this.state) this.begin();
    this.stage.draw();
    this.paint();
  }

  // The list of the server's videos, and the session of the page's address.
  async begin() {
    const { videos, limits } = this.on.about();
    $("video-limit").textContent = `MP4, MOV, Matroska, WebM or AVI, at most ${(limits.bytes / 1e6).toFixed(0)} MB.`;
    $("video-choose").hidden = !videos;
    const id = new URLSearchParams(location.hash.slice(1)).get("session");
    if (id && /^[0-9a-f]{32}$/.test(id)) {
      try {
        return await this.enter(await api(`/v1/sessions/${id}`));
      } catch (error) {
        history.replaceState(null, "", location.pathname);
        this.on.fail(error.status === 404 ? GONE : error.message);
      }
    }
    if (!videos) return;
    try {
      const { videos: names } = await api("/v1/videos");
      $("video-name").replaceChildren(...names.map((name) => new Option(name, name)));
      $("video-open").disabled = !names.length;
    } catch (error) {
      this.on.fail(error.message);
    }
  }

  upload(file) {
    if (!file) return;
    const most = this.on.about().limits.bytes;
    if (most && file.size > most - 4096) return this.on.fail(`The video has ${(file.size / 1e6).toFixed(1)} MB; the server takes ${(most / 1e6).toFixed(0)} MB (--max-bytes), or open it from the server's folder (--videos).`);
    const form = new FormData();
    form.append("video", file);
    this.open({ method: "POST", body: form }, file.name);
  }

  async open(request, name) {
    if (this.isBusy) return;
    this.isBusy = true;
    this.on.fail("");
    this.on.say(`Opening ${name}…`);
    try {
      const state = await patiently("/v1/sessions", request);
      this.isBusy = false;
      await this.enter(state, name);
    } catch (error) {
      this.on.fail(error.message);
      this.on.say("");
    } finally {
      this.isBusy = false;
    }
  }

  async enter(state, name = state.video ?? "video") {
    this.forget();
    Object.assign(this, { state, name });
    history.replaceState(null, "", `#session=${state.id}`);
    $("video-list").hidden = true;
    $("video-session").hidden = false;
    $("panel-video").hidden = !this.isVisible;
    $("video-title").textContent = name;
    Object.assign($("video-frame"), { min: state.first_frame, max: Math.max(state.frames - 1, 0) });
    $("video-word").value = state.text ?? "";
    await this.take(state, true);
    await this.show(this.frames.size ? Math.min(...this.frames.keys()) : state.first_frame);
    this.on.say("Type a word and press Find, or click on an object.");
    this.look();
  }

  async close() {
    const { id } = this.state;
    this.leave();
    await fetch(`/v1/sessions/${id}`, { method: "DELETE" }).catch(() => {});
    this.on.say("The session is closed.");
  }

  leave() {
    this.forget();
    history.replaceState(null, "", location.pathname);
    $("video-list").hidden = false;
    $("video-session").hidden = true;
    $("panel-video").hidden = true;
    this.begin();
  }

  async copyLink() {
    try {
      await navigator.clipboard.writeText(location.href);
      this.on.say("The link is copied: who opens it sees this session, and can change it.");
    } catch {
      this.on.fail("The browser does not let this page copy: the address of this page is the link.");
    }
  }

  // A session on which another page works, too.
  look() {
    clearTimeout(this.looking);
    this.looking = setTimeout(async () => {
      const { state } = this;
      if (!state) return;
      if (this.isVisible && !this.run && !this.isBusy) {
        try {
          const now = await api(`/v1/sessions/${state.id}`);
          if (this.state?.id === state.id && !this.run && !this.isBusy) await this.take(now);
        } catch (error) {
          if (error.status === 404 && this.state?.id === state.id) return this.gone();
        }
      }
      if (this.state?.id === state.id) this.look();
    }, LOOK);
  }

  gone() {
    this.leave();
    this.on.fail(GONE);
  }

  // Takes the state of the session, and the results that changed.
  async take(state, isFirst = false) {
    const { id } = state;
    if (state.started !== this.started) {
      Object.assign(this, { frames: new Map(), clicks: new Map(), last: [], object: null, started: state.started, revision: 0 });
    }
    if (isFirst || state.revision !== this.revision) {
      const answer = await fetch(`/v1/sessions/${id}/results?since=${this.revision}`);
      if (!answer.ok) throw Object.assign(new Error((await answer.json()).error), { status: answer.status });
      const lines = (await answer.text()).split("\n").filter(Boolean);
      if (this.state?.id !== id) return;
      lines.forEach((line) => this.put(JSON.parse(line)));
      this.revision = state.revision;
    }
    this.state = state;
    this.paint();
  }

  put({ frame, objects }) {
    this.frames.set(frame, objects);
  }

  async refresh() {
    await this.take(await api(`/v1/sessions/${this.state.id}`));
  }

  // Works on the session, one request at a time.
  async work(text, work) {
    if (!this.mayWork) return false;
    const { id } = this.state;
    this.isBusy = true;
    this.on.fail("");
    this.on.say(text);
    this.paint();
    let isDone = false;
    try {
      await work(`/v1/sessions/${id}`);
      if (this.state?.id === id) await this.refresh();
      isDone = true;
    } catch (error) {
      if (error.status === 404 && /no such session/.test(error.message)) this.gone();
      else this.on.fail(error.message);
      this.on.say("");
    } finally {
      this.isBusy = false;
      if (this.state) this.paint();
    }
    return isDone;
  }

  async find() {
    const text = $("video-word").value.trim();
    if (!text) return this.on.fail("Type what to find.");
    const start = performance.now();
    const found = await this.work("Looking…", async (path) => this.put(await api(`${path}/prompts`, json("POST", { frame: this.at, text }))));
    if (!found) return;
    const count = this.frames.get(this.at)?.length ?? 0;
    this.on.say(`${count || "Nothing"} found on frame ${this.at} in ${Math.round(performance.now() - start)} ms. Follow looks for it in the other frames.`);
  }

  keyOf(object, frame = this.at) {
    return `${object}/${frame}`;
  }

  // A box around another object.
  async box(box) {
    const start = performance.now(), frame = this.at, object = this.state.next_object;
    const done = await this.work("Looking…", async (path) => this.put(await api(`${path}/prompts`, json("POST", { frame, box: box.map((value) => Math.round(value * 100) / 100), object }))));
    if (!done) return;
    this.added(object, frame, []);
    this.on.say(`Object ${object + 1}, a box on frame ${frame}, ${Math.round(performance.now() - start)} ms. Click to mend its mask; Follow carries it to the other frames.`);
  }

  // Notes what was shown of an object, for Undo.
  added(object, frame, clicks, isNew = true) {
    this.clicks.set(this.keyOf(object, frame), clicks);
    this.last.push({ object, frame, isNew });
    this.object = object;
    this.paint();
  }

  async click(point, isPositive) {
    if (!this.mayWork) return;
    const isNew = this.object === null;
    if (isNew && !isPositive) return this.on.fail("Click on the object first, then on what is not part of it.");
    const { width, height } = this.state;
    const [x, y] = [Math.min(point[0], width - 0.01), Math.min(point[1], height - 0.01)].map((value) => Math.floor(value * 100) / 100);
    const before = isNew ? [] : this.clicks.get(this.keyOf(this.object)) ?? [];
    await this.send(this.object, [...before, [x, y, Number(isPositive)]]);
  }

  // Sends all clicks on an object of this frame; a new object has none before.
  async send(object, clicks) {
    const start = performance.now(), frame = this.at;
    let shown = object;
    const done = await this.work("Looking…", async (path) => {
      const answer = await api(`${path}/prompts`, json("POST", { frame, points: clicks.map(([x, y]) => [x, y]), labels: clicks.map((click) => click[2]), ...(object === null ? {} : { object }) }));
      shown = answer.object;
      this.put(answer);
    });
    if (!done) return;
    this.added(shown, frame, clicks, object === null);
    const has = this.frames.get(frame)?.some((one) => one.object === shown);
    this.on.say(`Object ${shown + 1}, ${counted(clicks.length, "click")} on frame ${frame}${has ? "" : ", no pixels: try other clicks"}, ${Math.round(performance.now() - start)} ms. Follow carries it to the other frames.`);
  }

  // Takes the last click back: an object without clicks goes.
  async undo() {
    const last = this.last.at(-1);
    if (!last || !this.mayWork) return;
    const key = this.keyOf(last.object, last.frame), clicks = (this.clicks.get(key) ?? []).slice(0, -1);
    if (this.at !== last.frame) await this.show(last.frame);
    if (clicks.length) {
      const before = this.last.slice(0, -1);
      await this.send(last.object, clicks);
      this.last = before;
    } else if (last.isNew) {
      await this.remove(last.object);
    } else {
      this.on.fail("The first click on an object that was found before stays: click again to mend its mask, or remove the object.");
    }
    this.paint();
  }

  async remove(object) {
    const done = await this.work("Removing…", (path) => api(`${path}/objects/${object}`, { method: "DELETE" }));
    if (!done) return false;
    for (const key of [...this.clicks.keys()]) if (key.startsWith(`${object}/`)) this.clicks.delete(key);
    this.last = this.last.filter((one) => one.object !== object);
    if (this.object === object) this.object = null;
    this.on.say(`Object ${object + 1} is removed.`);
    this.paint();
    return true;
  }

  async rename(name) {
    const { object } = this;
    if (object === null || !this.state) return;
    try {
      await this.take(await api(`/v1/sessions/${this.state.id}/objects/${object}`, json("PUT", { name })));
    } catch (error) {
      this.on.fail(error.message);
    }
  }

  // Follows the objects; frames are shown as they come.
  async follow() {
    if (!this.mayWork) return;
    this.stopPlaying();
    const { id, frames } = this.state, direction = $("video-direction").value, start = this.at;
    const run = this.run = new AbortController();
    const count = { forward: frames - start, backward: start, both: frames }[direction];
    let passed = 0;
    this.on.fail("");
    Object.assign($("video-progress"), { value: 0, max: Math.max(count, 1) });
    this.paint();
    const begun = performance.now();
    try {
      const answer = await fetch(`/v1/sessions/${id}/propagate`, { ...json("POST", { direction, start }), signal: run.signal });
      if (!answer.ok) throw new Error((await answer.json()).error);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = ""; ; ) {
        const { done, value } = await reader.read();
        text += value ?? "";
        const lines = text.split("\n");
        text = lines.pop();
        for (const line of lines.filter(Boolean).map((line) => JSON.parse(line))) {
          if (line.error) throw new Error(line.error);
          this.put(line);
          $("video-progress").value = ++passed;
          const left = (performance.now() - begun) / passed * (count - passed) / 1000;
          this.on.say(`Frame ${line.frame}, ${passed} of ${count}${left > 2 ? `, about ${Math.ceil(left)} s left` : ""}.`);
          // The image follows where it can.
          if (!this.showing) this.show(line.frame);
        }
        if (done) break;
      }
      this.on.say(`${counted(passed, "frame")} in ${((performance.now() - begun) / 1000).toFixed(1)} s.`);
    } catch (error) {
      if (run.signal.aborted) this.on.say(`Stopped after ${counted(passed, "frame")}.`);
      else this.on.fail(error.message);
    }
    if (this.run !== run) return;
    this.run = null;
    if (this.state?.id !== id) return;
    try {
      // The session notices that nobody reads any more with its next frame.
      for (let tries = 0; tries < 600; tries++) {
        await this.refresh();
        if (!this.state?.running) break;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    } catch (error) {
      if (error.status === 404) return this.gone();
      this.on.fail(error.message);
    }
    this.paint();
  }

  // Shows a frame; of several wishes the last one counts.
  async show(frame) {
    if (!this.state) return;
    this.at = Math.min(Math.max(frame, this.state.first_frame), Math.max(this.state.frames - 1, 0));
    $("video-frame").value = this.at;
    $("video-number").textContent = `${this.at} / ${Math.max(this.state.frames - 1, 0)}`;
    if (this.showing) return this.showing;
    this.showing = this.load();
    try {
      await this.showing;
    } finally {
      this.showing = null;
    }
  }

  async load() {
    const { id } = this.state;
    for (let shown = -1; shown !== this.at; ) {
      const wanted = this.at;
      try {
        const answer = await fetch(`/v1/sessions/${id}/frames/${wanted}`);
        if (!answer.ok) throw Object.assign(new Error((await answer.json()).error), { status: answer.status });
        const bitmap = await createImageBitmap(await answer.blob());
        if (this.state?.id !== id) return;
        this.stage.show(bitmap, bitmap.width, bitmap.height);
        Object.assign(this, { cursor: null, corner: null, drawn: wanted });
        shown = wanted;
        this.paint();
      } catch (error) {
        if (this.state?.id !== id) return;
        if (error.status === 404 && /no such session/.test(error.message)) return this.gone();
        this.on.fail(error.message);
        return this.stopPlaying();
      }
    }
  }

  async play() {
    if (this.playing) return this.stopPlaying();
    const { id, frame_rate: rate } = this.state, turn = this.playing = {};
    if (this.at >= this.state.frames - 1) await this.show(this.state.first_frame);
    this.paint();
    while (this.playing === turn && this.state?.id === id && this.at < this.state.frames - 1) {
      const start = performance.now();
      await this.show(this.at + 1);
      const rest = 1000 / (rate || 25) - (performance.now() - start);
      if (rest > 0) await new Promise((resolve) => setTimeout(resolve, rest));
    }
    if (this.playing === turn) this.stopPlaying();
  }

  stopPlaying() {
    if (!this.playing) return;
    this.playing = null;
    if (this.state) this.paint();
  }

  select(object) {
    this.object = object;
    if (object === null) this.on.say("The next click begins another object.");
    this.paint();
    $("video-stage").focus({ preventScroll: true });
  }

  nameOf(object) {
    return this.state.names[object] ?? "object";
  }

  paint() {
    if (!this.state) return;
    const { state, object } = this;
    const found = this.frames.get(this.drawn ?? this.at) ?? [];
    this.stage.marks = (this.clicks.get(this.keyOf(object)) ?? []).map(([x, y, isPositive]) => ({ at: [x, y], color: isPositive ? POSITIVE : NEGATIVE, text: isPositive ? "+" : "−" }));
    if (this.corner) this.stage.marks.push({ at: this.corner, color: POSITIVE, text: "□" });
    if (this.cursor) this.stage.marks.push({ at: this.cursor, isCursor: true });
    this.stage.set(found.map((one) => ({ box: one.box, mask: one.mask, label: `${one.object + 1} ${this.nameOf(one.object)}`, color: colorOf(one.object), dim: object !== null && one.object !== object })), -1);
    const known = new Set([...state.objects, ...[...this.frames.values()].flat().map((one) => one.object)]);
    const objects = [...known].sort((a, b) => a - b);
    const number = (one) => [...this.frames.values()].filter((all) => all.some((each) => each.object === one)).length;
    rows($("video-objects"), objects.map((one) => ({ key: one, color: colorOf(one), text: `${one + 1} ${this.nameOf(one)}`, number: counted(number(one), "frame"), removeName: `Remove object ${one + 1}` })), {
      pressed: objects.indexOf(object),
      choose: (at) => this.select(objects[at]),
      remove: (at) => this.remove(objects[at]),
    });
    // Not `disabled`, which would take the focus away.
    $("video-objects").querySelectorAll(".remove").forEach((button) => button.setAttribute("aria-disabled", String(!this.mayWork)));
    $("video-new").setAttribute("aria-pressed", String(object === null));
    $("video-object").disabled = object === null;
    if (document.activeElement !== $("video-object")) $("video-object").value = object === null ? "" : this.nameOf(object);
    const isRunning = this.isRunning, hasObjects = objects.length > 0 || state.text !== null;
    for (const id of ["video-search", "video-new"]) $(id).disabled = !this.mayWork;
    $("video-undo").disabled = !this.mayWork || !this.last.length;
    $("video-follow").disabled = !this.mayWork || !hasObjects;
    $("video-follow").hidden = isRunning;
    $("video-cancel").hidden = !this.run;
    $("video-running").hidden = !isRunning;
    $("video-progress").hidden = !this.run;
    $("video-elsewhere").hidden = Boolean(this.run) || !state.running;
    $("video-play").textContent = this.playing ? "Pause" : "Play";
    $("video-exports").hidden = !this.frames.size;
    $("video-frame").max = Math.max(state.frames - 1, 0);
    $("video-stage").setAttribute("aria-label", `${this.name}, frame ${this.drawn ?? this.at} of ${state.frames}, ${counted(found.length, "object")}: ${found.map((one) => `${one.object + 1} ${this.nameOf(one.object)}`).join(", ") || "none"}`);
  }

  async save(format, name) {
    if (!this.state) return;
    this.on.fail("");
    this.on.say("Writing the file…");
    try {
      const answer = await fetch(`/v1/sessions/${this.state.id}/download?format=${format}`);
      if (!answer.ok) throw new Error((await answer.json()).error);
      download(await answer.blob(), name);
      this.on.say(`${name} is saved.`);
    } catch (error) {
      this.on.say("");
      this.on.fail(error.message === "Failed to fetch" || /network/i.test(error.message) ? "The file could not be written; the server's log says why." : error.message);
    }
  }

  // Keys on the image: arrows move a cursor, Enter clicks.
  key(event) {
    if (!this.state || event.ctrlKey || event.metaKey) return;
    const at = this.cursor ?? [this.state.width / 2, this.state.height / 2];
    const moved = movedCursor(event, at, this.state);
    if (moved) {
      this.cursor = moved;
      this.on.say(`Cursor at ${moved.join(", ")}.`);
      this.paint();
    } else if (event.key === "Enter" || event.key === " ") {
      this.cursor = at;
      this.click(at, !(event.shiftKey || event.altKey));
    } else if (event.key.toLowerCase() === "b" && !event.altKey) {
      const box = this.corner && boxOf(this.corner, at);
      this.on.say(this.corner ? "The box has no area." : "One corner of the box is here: move the cursor, then press B again.");
      Object.assign(this, { cursor: at, corner: this.corner ? null : at });
      if (box) this.box(box);
      this.paint();
    } else {
      return;
    }
    event.preventDefault();
  }

  shortcut(event) {
    if (!this.isVisible || !this.state || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const isControl = event.ctrlKey || event.metaKey;
    const work = isControl ? { z: () => this.undo() } : { n: () => this.select(null), ",": () => this.show(this.at - 1), ".": () => this.show(this.at + 1), p: () => this.play() };
    const found = !event.altKey && work[event.key];
    if (!found) return;
    event.preventDefault();
    found();
  }
}
