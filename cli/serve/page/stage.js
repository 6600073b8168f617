// An image with boxes and masks on a canvas, and how a person changes the boxes.

const COLORS = ["#2a9d8f", "#e07a3f", "#5b7fd6", "#c9498b", "#8a9a2b", "#8d62c9", "#2d9cc4", "#c24d4d"];
const HANDLE = 9;

export const colorOf = (number) => COLORS[number % COLORS.length];

// COCO's compressed run lengths as numbers: pixels outside and inside in turn, column by column.
export function runLengths(counts) {
  const runs = [];
  for (let at = 0; at < counts.length; ) {
    let value = 0, shift = 0, more = true;
    while (more) {
      const code = counts.charCodeAt(at++) - 48;
      value |= (code & 31) << (5 * shift);
      more = (code & 32) !== 0;
      shift += 1;
      if (!more && (code & 16)) value |= -1 << (5 * shift);
    }
    if (runs.length > 2) value += runs[runs.length - 2];
    runs.push(value);
  }
  return runs;
}

export const maskArea = (mask) => runLengths(mask.counts).reduce((sum, run, at) => sum + (at % 2 ? run : 0), 0);

// Where an arrow key moves a cursor in an image, with Shift in larger steps; null for other keys.
export function movedCursor(event, [x, y], { width, height }) {
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (!step) return null;
  const size = Math.max(1, Math.round(Math.max(width, height) / (event.shiftKey ? 20 : 100)));
  const inside = (value, most) => Math.min(Math.max(Math.round(value), 0), most - 1);
  return [inside(x + step[0] * size, width), inside(y + step[1] * size, height)];
}

// The box of two corners; null if it has no area.
export function boxOf([a, b], [x, y]) {
  const box = [Math.min(a, x), Math.min(b, y), Math.max(a, x), Math.max(b, y)];
  return box[2] - box[0] < 1 || box[3] - box[1] < 1 ? null : box;
}

// A mask as a canvas in one colour.
function maskCanvas(mask, color) {
  const [height, width] = mask.size;
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(width, height);
  const value = (0x66 << 24) | (parseInt(color.slice(5, 7), 16) << 16) | (parseInt(color.slice(3, 5), 16) << 8) | parseInt(color.slice(1, 3), 16);
  const words = new Uint32Array(pixels.data.buffer);
  let at = 0;
  runLengths(mask.counts).forEach((run, number) => {
    if (number % 2) {
      for (let pixel = at; pixel < at + run; pixel++) words[(pixel % height) * width + Math.floor(pixel / height)] = value;
    }
    at += run;
  });
  context.putImageData(pixels, 0, 0);
  return canvas;
}

// Draws boxes and masks. `scale` is the size of a pixel of the image on the canvas.
export function drawBoxes(context, boxes, scale, selected = -1) {
  const unit = Math.max(1, window.devicePixelRatio || 1);
  for (const one of boxes) {
    if (!one.mask) continue;
    one.drawn ??= maskCanvas(one.mask, one.color);
    context.drawImage(one.drawn, 0, 0, one.mask.size[1] * scale, one.mask.size[0] * scale);
  }
  context.textBaseline = "middle";
  boxes.forEach((one, number) => {
    const [x1, y1, x2, y2] = one.box.map((value) => value * scale);
    const isSelected = number === selected;
    context.lineWidth = (isSelected ? 3.5 : 2) * unit;
    context.strokeStyle = one.color;
    context.setLineDash(one.dashed ? [6 * unit, 4 * unit] : []);
    if (one.polygon) {
      context.beginPath();
      one.polygon.forEach(([x, y]) => context.lineTo(x * scale, y * scale));
      context.closePath();
      context.globalAlpha = 0.35;
      context.fillStyle = one.color;
      context.fill();
      context.globalAlpha = 1;
    }
    context.strokeRect(x1, y1, x2 - x1, y2 - y1);
    context.setLineDash([]);
    const text = one.score === undefined ? one.label : `${one.label} ${one.score.toFixed(2)}`;
    if (text) {
      context.font = `600 ${12 * unit}px system-ui, sans-serif`;
      const height = 19 * unit, width = context.measureText(text).width + 12 * unit;
      const top = y1 >= height ? y1 - height : y1;
      const left = Math.max(0, Math.min(x1 - context.lineWidth / 2, context.canvas.width - width));
      context.fillStyle = one.color;
      context.fillRect(left, top, width, height);
      context.fillStyle = "#fff";
      context.fillText(text, left + 6 * unit, top + height / 2 + unit);
    }
    if (isSelected && one.editable) {
      context.fillStyle = "#fff";
      for (const [x, y] of [[x1, y1], [x2, y1], [x1, y2], [x2, y2]]) {
        context.beginPath();
        context.arc(x, y, 5 * unit, 0, 7);
        context.fill();
        context.stroke();
      }
    }
  });
}

// Draws clicks, and the cursor of the keyboard.
function drawMarks(context, marks, scale) {
  const unit = Math.max(1, window.devicePixelRatio || 1);
  context.textAlign = "center";
  context.font = `700 ${12 * unit}px system-ui, sans-serif`;
  for (const { at, color, text, dim, isCursor } of marks) {
    const [x, y] = at.map((value) => value * scale);
    context.beginPath();
    if (isCursor) {
      for (const [width, style] of [[5, "#fff"], [2, "#000"]]) {
        [context.lineWidth, context.strokeStyle] = [width * unit, style];
        for (const [dx, dy] of [[14, 0], [0, 14]]) {
          context.moveTo(x - dx * unit, y - dy * unit);
          context.lineTo(x + dx * unit, y + dy * unit);
        }
        context.stroke();
      }
      continue;
    }
    context.globalAlpha = dim ? 0.45 : 1;
    context.arc(x, y, 7.5 * unit, 0, 7);
    [context.fillStyle, context.strokeStyle, context.lineWidth] = [color, "#fff", 1.5 * unit];
    context.fill();
    context.stroke();
    context.fillStyle = "#fff";
    context.fillText(text, x, y + unit);
    context.globalAlpha = 1;
  }
  context.textAlign = "start";
}

// The image with its boxes as a file.
export function annotated(source, width, height, boxes) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d");
  context.drawImage(source, 0, 0, width, height);
  drawBoxes(context, boxes, 1);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

export class Stage {
  // `on` has draw(box), change(number, box), commit(), select(number), remove(number), mayDraw(), and for clicks
  // click(point, isPositive) and mayClick().
  constructor(canvas, on = {}) {
    Object.assign(this, { canvas, on, source: null, width: 0, height: 0, boxes: [], marks: [], selected: -1, drag: null });
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", () => this.up());
    canvas.addEventListener("contextmenu", (event) => this.menu(event));
    canvas.addEventListener("pointercancel", () => { this.drag = null; this.draw(); });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  show(source, width, height) {
    Object.assign(this, { source, width, height, boxes: [], marks: [], selected: -1, drag: null });
    this.draw();
  }

  set(boxes, selected = this.selected) {
    this.boxes = boxes;
    this.selected = selected < boxes.length ? selected : -1;
    this.draw();
  }

  get scale() {
    return this.canvas.width / this.width;
  }

  draw() {
    if (!this.source || !this.canvas.parentElement.clientWidth) return;
    const room = this.canvas.parentElement.clientWidth, tallest = Math.max(240, window.innerHeight * 0.78);
    const shown = Math.min(room, tallest * this.width / this.height);
    const ratio = window.devicePixelRatio || 1;
    this.canvas.style.width = `${shown}px`;
    this.canvas.width = Math.round(shown * ratio);
    this.canvas.height = Math.round(shown * ratio * this.height / this.width);
    const context = this.canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(this.source, 0, 0, this.canvas.width, this.canvas.height);
    drawBoxes(context, this.boxes, this.scale, this.selected);
    drawMarks(context, this.marks, this.scale);
    if (this.drag?.kind === "draw") drawBoxes(context, [{ box: this.drag.box, color: this.drag.color ?? "#888888", label: "", dashed: true }], this.scale);
  }

  point(event) {
    const frame = this.canvas.getBoundingClientRect();
    const inside = (value, most) => Math.min(Math.max(value, 0), most);
    return [inside((event.clientX - frame.left) / frame.width * this.width, this.width), inside((event.clientY - frame.top) / frame.height * this.height, this.height)];
  }

  // The corner of the selected box, or the smallest box, at a point; boxes that can be changed come first.
  hit([x, y], near) {
    const one = this.boxes[this.selected];
    if (one?.editable) {
      for (const [horizontal, vertical] of [[0, 1], [2, 1], [0, 3], [2, 3]]) {
        if (Math.hypot(one.box[horizontal] - x, one.box[vertical] - y) <= near) return { number: this.selected, horizontal, vertical };
      }
    }
    let best = null;
    this.boxes.forEach(({ box: [x1, y1, x2, y2], editable }, number) => {
      const area = (x2 - x1) * (y2 - y1) * (editable ? 1e-9 : 1);
      if (x >= x1 && x <= x2 && y >= y1 && y <= y2 && (!best || area < best.area)) best = { number, area };
    });
    return best;
  }

  down(event) {
    if (!this.source || event.button) return;
    const at = this.point(event), near = HANDLE * this.width / this.canvas.getBoundingClientRect().width;
    const color = this.on.mayDraw?.();
    const hit = this.hit(at, near);
    const forced = color && this.on.drawsOver;
    if (hit && !forced) {
      this.select(hit.number);
      if (this.boxes[hit.number].editable) this.drag = { kind: hit.horizontal === undefined ? "move" : "corner", ...hit, at, box: [...this.boxes[hit.number].box] };
    } else if (color) {
      this.drag = { kind: "draw", at, box: [...at, ...at], color, isNegative: event.altKey };
    } else {
      this.select(-1);
    }
    if (this.drag) {
      try { this.canvas.setPointerCapture(event.pointerId); } catch { /* a pointer that is gone */ }
      event.preventDefault();
      this.canvas.focus({ preventScroll: true });
    }
  }

  move(event) {
    const drag = this.drag;
    if (!drag) return;
    const [x, y] = this.point(event);
    if (drag.kind === "draw") {
      drag.box = [Math.min(drag.at[0], x), Math.min(drag.at[1], y), Math.max(drag.at[0], x), Math.max(drag.at[1], y)];
      this.draw();
    } else if (drag.kind === "move") {
      this.change(drag.number, this.shifted(drag.box, x - drag.at[0], y - drag.at[1]));
    } else {
      const box = [...drag.box];
      [box[drag.horizontal], box[drag.vertical]] = [x, y];
      this.change(drag.number, [Math.min(box[0], box[2]), Math.min(box[1], box[3]), Math.max(box[0], box[2]), Math.max(box[1], box[3])]);
    }
  }

  up() {
    const drag = this.drag;
    this.drag = null;
    if (!drag) return;
    if (drag.kind === "draw") {
      const [x1, y1, x2, y2] = drag.box;
      if (x2 - x1 >= 3 && y2 - y1 >= 3) this.on.draw?.(drag.box);
      else if (this.on.mayClick?.()) this.on.click(drag.at, !drag.isNegative);
      this.draw();
    } else {
      this.on.commit?.();
    }
  }

  // A right click, or a long touch; the menu key has no place in the image.
  menu(event) {
    if (!this.source || !this.on.mayClick?.() || event.pointerType === "" && event.button !== 2) return;
    event.preventDefault();
    this.drag = null;
    this.on.click(this.point(event), false);
  }

  shifted([x1, y1, x2, y2], dx, dy) {
    const right = Math.min(Math.max(dx, -x1), this.width - x2), down = Math.min(Math.max(dy, -y1), this.height - y2);
    return [x1 + right, y1 + down, x2 + right, y2 + down];
  }

  change(number, box) {
    if (box[2] - box[0] < 2 || box[3] - box[1] < 2) return;
    this.boxes[number].box = box;
    this.on.change?.(number, box);
    this.draw();
  }

  select(number) {
    this.selected = number;
    this.on.select?.(number);
    this.draw();
  }

  key(event) {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const one = this.boxes[this.selected];
    if (!one?.editable) return;
    if (step) {
      const size = Math.max(1, Math.round(Math.max(this.width, this.height) / 100));
      const [dx, dy] = step.map((value) => value * size);
      const [x1, y1, x2, y2] = one.box;
      this.change(this.selected, event.shiftKey ? [x1, y1, Math.min(this.width, Math.max(x1 + 2, x2 + dx)), Math.min(this.height, Math.max(y1 + 2, y2 + dy))] : this.shifted(one.box, dx, dy));
      this.on.commit?.();
      event.preventDefault();
    } else if (event.key === "Delete" || event.key === "Backspace") {
      this.on.remove?.(this.selected);
      event.preventDefault();
    }
  }
}
