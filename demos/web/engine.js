// The page's side of the workers: calls that return promises.

/** One thread. Its calls are done one after the other. */
class Thread {
  #worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  #waiting = new Map();
  #next = 1;
  /** Whether the worker has answered: one that cannot be loaded is not started again. */
  #hasStarted = false;

  constructor(onProgress, onFatal) {
    this.#worker.onmessage = ({ data }) => {
      this.#hasStarted = true;
      if (data.progress !== undefined) return onProgress(data.progress);
      const { resolve, reject } = this.#waiting.get(data.id);
      this.#waiting.delete(data.id);
      if (data.error === undefined) return resolve(data.result);
      reject(Object.assign(new Error(data.error), { fatal: data.fatal }));
      if (data.fatal) onFatal();
    };
    this.#worker.onerror = (event) => {
      event.preventDefault();
      if (this.#hasStarted) onFatal(event.message);
      else this.reject(new Error("the detector cannot be loaded: this browser may lack WebAssembly with SIMD"));
    };
  }

  call(command, given = {}, transfer = []) {
    return new Promise((resolve, reject) => {
      const id = this.#next++;
      this.#waiting.set(id, { resolve, reject });
      this.#worker.postMessage({ id, command, ...given }, transfer);
    });
  }

  get calls() {
    return this.#waiting.size;
  }

  reject(error) {
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    waiting.forEach(({ reject }) => reject(error));
  }

  end() {
    this.#worker.terminate();
  }

  /** Ends the thread after its calls. */
  endWhenDone() {
    this.call("forget").finally(() => this.end());
  }
}

// Every thread has a model of its own; beyond four, a laptop's cores are busy.
const MOST_THREADS = 4;
const LARGEST_SHARED = 2e8;

/** A model in several threads, each of which works on a frame of its own, and one more thread that follows detections. */
export class Engine {
  #onProgress;
  #detectors = [];
  #tracker;

  constructor(onProgress) {
    this.#onProgress = onProgress;
    this.#start(1);
  }

  /** The number of frames that are worked on at once. */
  get width() {
    return this.#detectors.length;
  }

  #start(count) {
    const fatal = (reason) => this.restart(reason);
    const thread = (progress) => new Thread(progress, fatal);
    while (this.#detectors.length > count) this.#detectors.pop().endWhenDone();
    while (this.#detectors.length < count) {
      this.#detectors.push(thread(this.#detectors.length ? () => {} : this.#onProgress));
    }
    this.#tracker ??= thread(() => {});
  }

  /** Ends the threads and starts another, which has no model yet. */
  restart(reason = "the detector was restarted") {
    const ended = [...this.#detectors, this.#tracker];
    [this.#detectors, this.#tracker] = [[], undefined];
    this.#start(1);
    for (const thread of ended) {
      thread.end();
      thread.reject(Object.assign(new Error(reason), { fatal: true }));
    }
  }

  /** Opens a model, in as many threads as the computer has cores for. */
  async open(given) {
    const opened = await this.#detectors[0].call("open", given);
    const cores = navigator.hardwareConcurrency ?? 1;
    this.#start(opened.bytes > LARGEST_SHARED ? 1 : Math.min(cores, MOST_THREADS));
    await Promise.all(this.#detectors.slice(1).map((thread) => thread.call("open", given)));
    await this.#tracker.call("forget");
    return opened;
  }

  /** Tells every thread. */
  async set(command, given = {}) {
    await Promise.all(this.#detectors.map((thread) => thread.call(command, given)));
    if (command === "prompts") await this.#tracker.call("forget");
  }

  /** Detects in a frame, in the thread with the least to do. */
  detect(bitmap) {
    const thread = this.#detectors.reduce((least, other) => (other.calls < least.calls ? other : least));
    return thread.call("detect", { bitmap }, [bitmap]);
  }

  /** Follows the detections of a frame, which come in the order of the frames. */
  track(detections) {
    return this.#tracker.call("track", { detections });
  }
}
