// Where frames come from: an image, a video file, or the camera.

const revoke = (url) => url && URL.revokeObjectURL(url);

/** One image. */
export class Still {
  isLive = false;

  static async open(blob) {
    const image = new Still();
    try {
      image.bitmap = await createImageBitmap(blob);
    } catch {
      throw new Error(`cannot read ${blob.name ?? "the image"}: the browser does not know this format`);
    }
    return image;
  }

  frame() {
    return createImageBitmap(this.bitmap);
  }

  close() {
    this.bitmap.close();
  }
}

/** A video file or the camera. */
export class Video {
  isLive = true;
  #url;
  #element = Object.assign(document.createElement("video"), { muted: true, playsInline: true, loop: true });
  #isNew = false;
  #wake = () => {};

  constructor() {
    this.#watch();
  }

  /** Notes that there is a frame, so that nobody waits for the one after it. */
  #watch() {
    this.#element.requestVideoFrameCallback?.(() => {
      this.#isNew = true;
      this.#wake();
      this.#watch();
    });
  }

  static async file(blob) {
    const video = new Video();
    video.#url = URL.createObjectURL(blob);
    video.#element.src = video.#url;
    try {
      await video.#element.play();
    } catch {
      video.close();
      throw new Error(`cannot play ${blob.name ?? "the video"}: the browser does not know this format`);
    }
    return video;
  }

  static async camera() {
    if (!navigator.mediaDevices) throw new Error("no camera here: browsers give it to https and localhost only");
    const video = new Video();
    try {
      const ideal = { width: { ideal: 1280 }, height: { ideal: 720 }, facingMode: "environment" };
      video.#element.srcObject = await navigator.mediaDevices.getUserMedia({ video: ideal });
    } catch (error) {
      const why = { NotAllowedError: "it was not allowed", NotFoundError: "there is none" }[error.name];
      throw new Error(`no camera: ${why ?? error.message}`);
    }
    await video.#element.play();
    return video;
  }

  get time() {
    return this.#element.currentTime;
  }

  set paused(paused) {
    if (paused) this.#element.pause();
    else this.#element.play();
  }

  /** The newest frame, once there is one that has not been returned before. */
  async frame() {
    const element = this.#element;
    if (!this.#isNew && !element.paused && element.requestVideoFrameCallback) {
      // A tab in the background gets no frames: it goes on with what is there.
      await Promise.race([
        new Promise((resolve) => (this.#wake = resolve)),
        new Promise((resolve) => setTimeout(resolve, 250)),
      ]);
    }
    this.#isNew = false;
    return createImageBitmap(element);
  }

  close() {
    this.#element.srcObject?.getTracks().forEach((track) => track.stop());
    this.#element.pause();
    this.#element.removeAttribute("src");
    revoke(this.#url);
  }
}
