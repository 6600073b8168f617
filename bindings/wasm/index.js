// Open-vocabulary detection in a web page. Call it from a worker: a frame takes tens of milliseconds.

// A module with one instruction of relaxed SIMD.
const RELAXED = Uint8Array.of(
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 15, 1, 13, 0, 65, 1, 253, 15, 65, 2, 253, 15, 253, 128, 2, 11,
);

let ready;
let wasm;

/**
 * Loads the WebAssembly; the other functions do it by themselves. A browser with relaxed SIMD gets a build that multiplies
 * and adds in one instruction.
 */
export function load(source) {
  ready ??= start(source);
  return ready;
}

async function start(source) {
  const isRelaxed = source === undefined && WebAssembly.validate(RELAXED);
  const module = await (isRelaxed ? import("./relaxed/ocelli_wasm.js") : import("./ocelli_wasm.js"));
  const file = new URL(`${isRelaxed ? "relaxed/" : ""}ocelli_wasm_bg.wasm`, import.meta.url);
  await module.default({ module_or_path: source ?? file });
  wasm = module;
}

/** Fetches an exported model: its `model.json`, and the files that it lists. */
export async function fetchModel(folder = new URL("./model/", import.meta.url), onProgress = () => {}) {
  const fetchFile = async (name) => {
    const response = await fetch(new URL(name, folder));
    if (!response.ok) throw new Error(`cannot fetch ${name} of the model: ${response.status} ${response.statusText}`);
    return new Uint8Array(await response.arrayBuffer());
  };
  const manifest = await fetchFile("model.json");
  const sizes = JSON.parse(new TextDecoder().decode(manifest)).files;
  const total = Object.values(sizes).reduce((sum, file) => sum + file.bytes, 0);
  let loaded = 0;
  const fetched = Object.keys(sizes).map(async (name) => {
    const bytes = await fetchFile(name);
    onProgress((loaded += bytes.length), total);
    return [name, bytes];
  });
  return new Map([["model.json", manifest], ...(await Promise.all(fetched))]);
}

function reader(files) {
  return (name) => {
    const content = files.get(name);
    if (content === undefined) throw new Error(`the model has no file ${name}`);
    if (content instanceof Uint8Array) return content;
    // Files that a visitor has picked stay on disk until they are needed. Only workers read them in time.
    return new Uint8Array(new FileReaderSync().readAsArrayBuffer(content));
  };
}

/** A model, its engine, and the classes that it looks for. */
export class Detector {
  #inner;

  /** `files`: names and contents (`Uint8Array`, or `Blob` in a worker) of an exported folder; the built-in model by default. */
  static async open({ files, ...options } = {}) {
    const [model] = await Promise.all([files ?? fetchModel(), load()]);
    const detector = new Detector();
    detector.#inner = new wasm.Detector(reader(model), JSON.stringify(options));
    return detector;
  }

  get manifest() {
    return JSON.parse(this.#inner.manifest);
  }

  get engine() {
    return this.#inner.engine;
  }

  setPrompts(prompts) {
    const full = prompts.map((prompt) => (typeof prompt === "string" ? { phrase: prompt } : prompt));
    this.#inner.setPrompts(JSON.stringify(full));
  }

  setConfidence(confidence) {
    this.#inner.setConfidence(confidence);
  }

  keepExemplars({ data, width, height }) {
    this.#inner.keepExemplars(bytes(data), width, height);
  }

  detect({ data, width, height }) {
    return JSON.parse(this.#inner.detect(bytes(data), width, height));
  }

  free() {
    this.#inner.free();
  }
}

/** Follows detections from frame to frame. */
export class Tracker {
  #inner;

  static async create() {
    await load();
    const tracker = new Tracker();
    tracker.#inner = new wasm.Tracker();
    return tracker;
  }

  update(detections, frames = 1) {
    return JSON.parse(this.#inner.update(JSON.stringify(detections), frames));
  }

  reset() {
    this.#inner.reset();
  }

  free() {
    this.#inner.free();
  }
}

/** Text prompts to token ids. */
export class Tokenizer {
  #inner;

  static async create(json, contextLength) {
    await load();
    const tokenizer = new Tokenizer();
    tokenizer.#inner = new wasm.Tokenizer(json, contextLength);
    return tokenizer;
  }

  encode(phrase) {
    return JSON.parse(this.#inner.encode(phrase));
  }

  free() {
    this.#inner.free();
  }
}

/** The names that the built-in model knows. */
export async function vocabulary() {
  await load();
  return JSON.parse(wasm.vocabulary());
}

/** The version of the library. */
export async function version() {
  await load();
  return wasm.version();
}

function bytes(data) {
  return data instanceof Uint8Array ? data : new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}
