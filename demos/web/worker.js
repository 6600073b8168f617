// Detects, or follows detections, in a thread of its own, so that the page stays responsive.

import { Detector, Tracker, fetchModel, vocabulary } from "./package/index.js";

const state = { files: undefined, builtIn: undefined, detector: undefined, tracker: undefined, prompts: [] };
const surface = new OffscreenCanvas(1, 1);
const context = surface.getContext("2d", { willReadFrequently: true });

function pixels(bitmap) {
  if (surface.width !== bitmap.width || surface.height !== bitmap.height) {
    (surface.width = bitmap.width), (surface.height = bitmap.height);
  }
  context.drawImage(bitmap, 0, 0);
  return context.getImageData(0, 0, bitmap.width, bitmap.height);
}

const commands = {
  async open({ files, masks, confidence }) {
    const model = files ?? (state.builtIn ??= await fetchModel(undefined, (loaded, total) =>
      postMessage({ progress: loaded / total })));
    const detector = await Detector.open({ files: model, masks, confidence });
    state.detector?.free();
    state.detector = detector;
    const { imgsz, detection_only: detectionOnly, files: parts } = detector.manifest;
    const bytes = Object.values(parts).reduce((sum, file) => sum + file.bytes, 0);
    return { imgsz, bytes, masks: !detectionOnly, engine: detector.engine, vocabulary: await vocabulary() };
  },

  prompts({ prompts }) {
    state.detector.setPrompts(prompts);
  },

  keep({ bitmap }) {
    state.detector.keepExemplars(pixels(bitmap));
    bitmap.close();
  },

  confidence({ confidence }) {
    state.detector.setConfidence(confidence);
  },

  detect({ bitmap }) {
    const began = performance.now();
    const found = state.detector.detect(pixels(bitmap));
    return { ...found, bitmap, ms: performance.now() - began };
  },

  async track({ detections }) {
    state.tracker ??= await Tracker.create();
    return state.tracker.update(detections);
  },

  forget() {
    state.tracker?.reset();
  },
};

onmessage = async ({ data: { id, command, ...given } }) => {
  try {
    const result = await commands[command](given);
    postMessage({ id, result }, result?.bitmap ? [result.bitmap] : []);
  } catch (error) {
    // A panic leaves the WebAssembly unusable: the page starts another worker.
    postMessage({ id, error: error.message ?? String(error), fatal: error instanceof WebAssembly.RuntimeError });
  }
};
