// Draws a frame with what was found in it, so that boxes and frame cannot drift apart.

const FONT = '"DejaVu Sans", system-ui, sans-serif';

/** `frame`: the bitmap; `found`: detections; `tracks`: tracks, if they are followed. */
export function draw(context, frame, { detections, tracks }, examples, cross) {
  const { canvas } = context;
  if (canvas.width !== frame.width || canvas.height !== frame.height) {
    (canvas.width = frame.width), (canvas.height = frame.height);
  }
  context.drawImage(frame, 0, 0);
  const unit = Math.max(1, Math.min(frame.width, frame.height) / 400);
  const followed = new Map((tracks ?? []).map((track) => [track.detection, track]));
  detections.forEach((detection) => fillMask(context, detection));
  detections.forEach((detection, index) => outline(context, detection, followed.get(index), unit));
  examples.forEach((example) => outlineExample(context, example, unit));
  if (cross) drawCross(context, cross, unit);
}

function fillMask(context, { polygons, color }) {
  context.beginPath();
  for (const polygon of polygons) {
    polygon.forEach(([x, y], index) => (index ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.closePath();
  }
  context.globalAlpha = 0.42;
  context.fillStyle = color;
  context.fill("evenodd");
  context.globalAlpha = 1;
}

function outline(context, { box, color: ofClass, label, score }, track, unit) {
  const [x1, y1, x2, y2] = box;
  const color = track?.color ?? ofClass;
  context.lineWidth = 2 * unit;
  context.strokeStyle = color;
  context.strokeRect(x1, y1, x2 - x1, y2 - y1);
  const text = `${track ? `${track.id} ` : ""}${label} ${score.toFixed(2)}`;
  context.font = `600 ${12 * unit}px ${FONT}`;
  const [width, height] = [context.measureText(text).width + 8 * unit, 17 * unit];
  const left = Math.max(0, Math.min(x1 - unit, context.canvas.width - width));
  const top = y1 >= height ? y1 - height : y1;
  context.fillStyle = color;
  context.fillRect(left, top, width, height);
  context.fillStyle = isLight(color) ? "#101010" : "#ffffff";
  context.textBaseline = "middle";
  context.fillText(text, left + 4 * unit, top + height / 2 + unit / 2);
}

function outlineExample(context, { box: [x1, y1, x2, y2], wanted }, unit) {
  for (const [color, dash] of [["#ffffff", []], [wanted ? "#0b7a3f" : "#c2200f", [6 * unit, 4 * unit]]]) {
    context.setLineDash(dash);
    context.strokeStyle = color;
    context.lineWidth = (dash.length ? 2 : 4) * unit;
    context.strokeRect(x1, y1, x2 - x1, y2 - y1);
  }
  context.setLineDash([]);
}

function drawCross(context, { x, y }, unit) {
  for (const [color, width] of [["#ffffff", 4 * unit], ["#101010", 2 * unit]]) {
    context.strokeStyle = color;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(x - 12 * unit, y), context.lineTo(x + 12 * unit, y);
    context.moveTo(x, y - 12 * unit), context.lineTo(x, y + 12 * unit);
    context.stroke();
  }
}

/** Whether dark text is easier to read on a colour: relative luminance above that of middle grey. */
function isLight(color) {
  const [red, green, blue] = [1, 3, 5].map((at) => (parseInt(color.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.25;
}
