// Results as JSON, YOLO and COCO.

import { maskArea } from "/page/stage.js";

const share = (value) => Math.min(Math.max(value, 0), 1).toFixed(6);

export function asText(format, name, found, classes) {
  const { width, height, detections } = found;
  if (format === "yolo") {
    return detections.map(({ class_id, box: [x1, y1, x2, y2] }) =>
      `${class_id} ${share((x1 + x2) / 2 / width)} ${share((y1 + y2) / 2 / height)} ${share((x2 - x1) / width)} ${share((y2 - y1) / height)}\n`).join("");
  }
  if (format === "coco") {
    const annotations = detections.map((one, number) => {
      const [x1, y1, x2, y2] = one.box;
      const round = (value) => Math.round(value * 100) / 100;
      const annotation = { id: number + 1, image_id: 1, category_id: one.class_id + 1, bbox: [x1, y1, x2 - x1, y2 - y1].map(round), area: round((x2 - x1) * (y2 - y1)), iscrowd: 0, score: one.score };
      return one.mask ? { ...annotation, area: maskArea(one.mask), segmentation: one.mask } : annotation;
    });
    return `${JSON.stringify({ images: [{ id: 1, file_name: name, width, height }], annotations, categories: classes.map((name, id) => ({ id: id + 1, name })) }, null, 1)}\n`;
  }
  const { timing_ms, ...rest } = found;
  return `${JSON.stringify({ images: [{ file: name, ...rest, timing_ms }] })}\n`;
}

export const extension = { json: "json", yolo: "txt", coco: "json" };

export function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export const stem = (name) => name.replace(/\.[^.]*$/, "") || "image";
