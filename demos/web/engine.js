// The page's side of the worker: calls that return promises, one after the other.

export class Engine {
  #worker;
  #waiting = new Map();
  #next = 1;
  /** Whether the worker has answered: one that cannot be loaded is not started again. */
  #hasStarted = false;
  #onProgress;

  constructor(onProgress) {
    this.#onProgress = onProgress;
    this.#start();
  }

  #start() {
    this.#hasStarted = false;
    this.#worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    this.#worker.onmessage = ({ data }) => {
      this.#hasStarted = true;
      if (data.progress !== undefined) return this.#onProgress(data.progress);
      const { resolve, reject } = this.#waiting.get(data.id);
      this.#waiting.delete(data.id);
      if (data.error === undefined) return resolve(data.result);
      if (data.fatal) this.restart();
      reject(Object.assign(new Error(data.error), { fatal: data.fatal }));
    };
    this.#worker.onerror = (event) => {
      event.preventDefault();
      if (this.#hasStarted) this.restart(event.message);
      else this.#reject(new Error("the detector cannot be loaded: this browser may lack WebAssembly with SIMD"));
    };
  }

  /** Ends the worker and starts another, which has no model yet. */
  restart(reason = "the detector was restarted") {
    this.#worker.terminate();
    this.#start();
    this.#reject(Object.assign(new Error(reason), { fatal: true }));
  }

  #reject(error) {
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    waiting.forEach(({ reject }) => reject(error));
  }

  call(command, given = {}, transfer = []) {
    return new Promise((resolve, reject) => {
      const id = this.#next++;
      this.#waiting.set(id, { resolve, reject });
      this.#worker.postMessage({ id, command, ...given }, transfer);
    });
  }
}
