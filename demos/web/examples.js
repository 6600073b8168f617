// Example boxes, drawn with the mouse, a finger or the keyboard.

/** The shortest side of a box in pixels: less is a click. */
const SHORTEST = 3;

export class ExampleBoxes {
  /** The class of boxes that stand for themselves. */
  static NEW_CLASS = "\n";

  /** `{ name, box, wanted }` */
  list = [];
  /** The frame that the boxes are in. */
  frame = undefined;
  /** Where the keyboard's cross is. */
  cross = undefined;
  #mode = "off";
  #frameNumber;
  #start;
  #end;
  #view;
  #page;

  /** `page`: `frame()`, `frameNumber()`, `className()`, `redraw()`, `changed()`. */
  constructor(view, page) {
    this.#view = view;
    this.#page = page;
    view.addEventListener("pointerdown", (event) => this.#press(event));
    view.addEventListener("pointermove", (event) => this.#drag(event));
    view.addEventListener("pointerup", () => this.#finish());
    view.addEventListener("pointercancel", () => this.#cancel());
    view.addEventListener("keydown", (event) => this.#key(event));
    view.addEventListener("blur", () => this.#cancel());
  }

  get isDrawing() {
    return this.#mode !== "off";
  }

  setMode(mode) {
    this.#mode = mode;
    this.#view.toggleAttribute("data-drawing", this.isDrawing);
    this.#cancel();
  }

  /** The examples of a class, as prompts have them. */
  of(name) {
    return this.list.filter((example) => example.name === name).map(({ box, wanted }) => ({ box, wanted }));
  }

  /** What is drawn: the examples while their frame is on the canvas, and the box at hand. */
  visible() {
    const kept = this.#frameNumber === this.#page.frameNumber() ? this.list : [];
    const box = this.#box();
    return box ? [...kept, { box, wanted: this.#mode === "wanted" }] : kept;
  }

  keepClasses(names) {
    this.list = this.list.filter(({ name }) => name === ExampleBoxes.NEW_CLASS || names.includes(name));
  }

  clear() {
    this.list = [];
  }

  remove(index) {
    this.list.splice(index, 1);
    this.#page.changed();
  }

  #place(event) {
    const area = this.#view.getBoundingClientRect();
    const x = ((event.clientX - area.left) / area.width) * this.#view.width;
    const y = ((event.clientY - area.top) / area.height) * this.#view.height;
    return { x: Math.min(Math.max(x, 0), this.#view.width), y: Math.min(Math.max(y, 0), this.#view.height) };
  }

  #press(event) {
    if (!this.isDrawing || !this.#page.frame() || event.button) return;
    event.preventDefault();
    this.#view.focus({ preventScroll: true });
    this.#view.setPointerCapture(event.pointerId);
    this.cross = undefined;
    this.#start = this.#end = this.#place(event);
  }

  #drag(event) {
    if (!this.#start || this.cross) return;
    this.#end = this.#place(event);
    this.#page.redraw();
  }

  #key(event) {
    if (!this.isDrawing || !this.#page.frame()) return;
    const step = (event.shiftKey ? 1 : 10) * Math.max(1, this.#view.width / 640);
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (move) {
      const { x, y } = this.cross ?? { x: this.#view.width / 2, y: this.#view.height / 2 };
      this.cross = {
        x: Math.min(Math.max(x + move[0] * step, 0), this.#view.width),
        y: Math.min(Math.max(y + move[1] * step, 0), this.#view.height),
      };
      if (this.#start) this.#end = this.cross;
    } else if (event.key === "Enter" && this.cross) {
      if (this.#start) this.#finish();
      else this.#start = this.#end = this.cross;
    } else if (event.key === "Escape") {
      this.#cancel();
    } else {
      return;
    }
    event.preventDefault();
    this.#page.redraw();
  }

  #box() {
    if (!this.#start) return undefined;
    const [a, b] = [this.#start, this.#end];
    return [Math.min(a.x, b.x), Math.min(a.y, b.y), Math.max(a.x, b.x), Math.max(a.y, b.y)];
  }

  async #finish() {
    const box = this.#box();
    this.#start = this.#end = undefined;
    if (!box || box[2] - box[0] < SHORTEST || box[3] - box[1] < SHORTEST) return this.#page.redraw();
    const number = this.#page.frameNumber();
    if (this.#frameNumber !== number) {
      // The boxes of one search are in one frame.
      this.list = [];
      this.#frameNumber = number;
      this.frame?.close();
      this.frame = await createImageBitmap(this.#page.frame());
    }
    this.list.push({ name: this.#page.className(), box, wanted: this.#mode === "wanted" });
    this.#page.changed();
  }

  #cancel() {
    this.#start = this.#end = undefined;
    this.cross = undefined;
    this.#page.redraw();
  }
}
