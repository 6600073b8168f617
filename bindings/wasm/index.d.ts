/** Left, top, right and bottom, in pixels of the image. */
export type Box = [number, number, number, number];

/** Pixels: what a canvas's `getImageData` returns. The fourth byte of a pixel is ignored. */
export interface Pixels {
  data: Uint8Array | Uint8ClampedArray;
  width: number;
  height: number;
}

/** A box around an instance that shows what to detect, or what not to detect. */
export interface Exemplar {
  box: Box;
  wanted: boolean;
}

/** One class to detect: text, exemplars, or both. */
export interface Prompt {
  /** A noun or a short phrase. */
  phrase?: string;
  /** The label of the detections; the phrase by default. */
  label?: string;
  /** Boxes in the image at hand. */
  exemplars?: Exemplar[];
}

export interface Detection {
  /** The index of its prompt. */
  class_id: number;
  label: string;
  /** 0 to 1. */
  score: number;
  box: Box;
  /** COCO's compressed run lengths, if the detector computes masks. */
  mask?: { size: [number, number]; counts: string };
  /** The mask as polygons, `[part][corner][x, y]`, to be filled by the even-odd rule. */
  polygons: [number, number][][];
  /** The colour of its class, `#rrggbb`. */
  color: string;
}

/** Milliseconds. */
export interface StageTimes {
  text: number;
  preprocess: number;
  backbone: number;
  decode: number;
  masks: number;
  total: number;
}

export interface Detections {
  /** The highest score first. */
  detections: Detection[];
  times: StageTimes;
}

export interface Track {
  /** From 1, never reused. */
  id: number;
  class_id: number;
  score: number;
  box: Box;
  age_frames: number;
  hits: number;
  state: "tentative" | "confirmed" | "lost";
  velocity: [number, number];
  frames_since_seen: number;
  /** The index of its detection, if it was detected in this frame. */
  detection: number | null;
  /** The colour of the track, `#rrggbb`. */
  color: string;
}

/** The files of an exported model by name. A `Blob` is read when it is needed, in a worker only. */
export type ModelFiles = Map<string, Uint8Array | Blob>;

export interface DetectorOptions {
  /** The built-in model by default, which is fetched from `model/` beside the module. */
  files?: ModelFiles;
  /** Whether detections have masks; true by default. */
  masks?: boolean;
  /** Detections with a score above this are returned, 0 to 1; the model's own threshold by default. */
  confidence?: number;
}

/** Loads the WebAssembly, from another place than beside the module if one is given: `ocelli_wasm_bg.wasm` of the package. */
export function load(source?: string | URL | Request | Response | BufferSource | WebAssembly.Module): Promise<void>;

/** Fetches an exported model: `model.json` in the folder, and the files that it lists. */
export function fetchModel(folder?: URL | string, onProgress?: (loaded: number, total: number) => void): Promise<ModelFiles>;

/** A model, its engine, and the classes that it looks for. */
export class Detector {
  private constructor();
  static open(options?: DetectorOptions): Promise<Detector>;
  /** The content of `model.json`. */
  readonly manifest: Record<string, unknown>;
  /** The engine, for display. */
  readonly engine: string;
  /** The classes to look for; loads the graphs that they need. */
  setPrompts(prompts: (string | Prompt)[]): void;
  setConfidence(confidence: number): void;
  /** Keeps what the exemplars of the prompts show, which are boxes in this image, for other images. */
  keepExemplars(image: Pixels): void;
  detect(image: Pixels): Detections;
  /** Releases the memory of the model. */
  free(): void;
}

/** Follows detections from frame to frame (ByteTrack). */
export class Tracker {
  private constructor();
  static create(): Promise<Tracker>;
  /** Updates the tracks with a frame that is `frames` (1) after the last one, and returns the confirmed ones. */
  update(detections: Pick<Detection, "box" | "score" | "class_id">[], frames?: number): Track[];
  reset(): void;
  free(): void;
}

/** Text prompts to token ids, as the text encoder reads them. */
export class Tokenizer {
  private constructor();
  /** Reads a `tokenizer.json`; rows have `contextLength` ids. */
  static create(json: Uint8Array, contextLength: number): Promise<Tokenizer>;
  encode(phrase: string): { ids: number[]; mask: number[] };
  free(): void;
}

/** The names that the built-in model knows. */
export function vocabulary(): Promise<string[]>;

/** The version of the library. */
export function version(): Promise<string>;
