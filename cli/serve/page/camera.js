// The camera: frames go through a WebSocket, and each is shown with what was found in it.

import { colorOf, drawBoxes } from "/page/stage.js";

const SIDE = 960, QUALITY = 0.85;

export class Camera {
  constructor(canvas, { question, found, said, failed, ended }) {
    Object.assign(this, { canvas, question, found, said, failed, ended, frames: new Map(), times: [] });
  }

  async start(device) {
    this.stop();
    if (!navigator.mediaDevices?.getUserMedia) throw new Error("The browser gives no camera to this page: open it on this machine, or through HTTPS.");
    this.stream = await navigator.mediaDevices.getUserMedia({ video: device ? { deviceId: { exact: device } } : { facingMode: "environment" }, audio: false });
    const video = Object.assign(document.createElement("video"), { muted: true, playsInline: true, srcObject: this.stream });
    await video.play();
    const scale = Math.min(1, SIDE / Math.max(video.videoWidth, video.videoHeight));
    [this.width, this.height] = [Math.round(video.videoWidth * scale), Math.round(video.videoHeight * scale)];
    this.video = video;
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/video`);
    this.socket = socket;
    this.sent = 0;
    let refused = "The server refused the video; maybe it has too many. Try again in a moment.";
    socket.addEventListener("open", () => { refused = "The server closed the connection."; this.ask(); });
    socket.addEventListener("message", (event) => this.answer(JSON.parse(event.data)));
    socket.addEventListener("close", () => { if (this.socket === socket) { this.stop(); this.failed(refused); } });
  }

  // Sends what to find; the first time, frames follow.
  ask() {
    const question = this.question();
    if (this.socket?.readyState === WebSocket.OPEN && question.classes.length) this.socket.send(JSON.stringify(question));
    else if (this.socket) this.said("Type what to find.");
  }

  async answer(message) {
    if (message.error) this.failed(message.error);
    if (message.ready && !this.sent) {
      // Two frames are under way, so that the server never waits.
      await this.send();
      await this.send();
    } else if (message.frame !== undefined) {
      const bitmap = this.frames.get(message.frame);
      for (const [number, old] of this.frames) if (number <= message.frame) { this.frames.delete(number); if (old !== bitmap) old.close(); }
      if (bitmap && message.detections) this.show(bitmap, message);
      bitmap?.close();
      await this.send();
    }
  }

  async send() {
    const socket = this.socket;
    if (socket?.readyState !== WebSocket.OPEN) return;
    const number = this.sent++;
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [this.width, this.height];
    canvas.getContext("2d").drawImage(this.video, 0, 0, this.width, this.height);
    this.frames.set(number, await createImageBitmap(canvas));
    const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", QUALITY));
    if (socket.readyState === WebSocket.OPEN) socket.send(await blob.arrayBuffer());
  }

  show(bitmap, message) {
    [this.canvas.width, this.canvas.height] = [message.width, message.height];
    const context = this.canvas.getContext("2d");
    context.drawImage(bitmap, 0, 0);
    drawBoxes(context, message.detections.map((one) => ({ ...one, color: colorOf(one.class_id) })), 1);
    const now = performance.now();
    this.times = [...this.times.filter((time) => now - time < 2000), now];
    this.found(message, this.times.length / 2);
  }

  stop() {
    const { socket, stream } = this;
    this.socket = this.stream = null;
    socket?.close();
    stream?.getTracks().forEach((track) => track.stop());
    this.frames.forEach((bitmap) => bitmap.close());
    this.frames.clear();
    this.ended();
  }
}
