// Every control of the page, as a visitor uses it, with a camera that shows a drawn scene.
//   node page.mjs PAGE_FOLDER [SCREENSHOT_FOLDER]

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { serve } from "./server.mjs";
import { start } from "./browser.mjs";

const [folder, screenshots] = process.argv.slice(2);
const server = await serve([["/", folder]]);
const temporary = mkdtempSync(join(tmpdir(), "ocelli-page-"));
const problems = [];

const shot = (page, name) => screenshots && page.screenshot({ path: join(screenshots, `${name}.png`), fullPage: true });

async function visit(options) {
  const opened = await start({ origin: server.origin, ...options });
  await opened.page.goto(`${server.origin}/`);
  await opened.page.getByText("Ready. Choose a source.").waitFor({ timeout: 60_000 });
  return {
    ...opened,
    async close() {
      problems.push(...opened.strangers, ...opened.errors);
      await opened.context.close();
    },
  };
}

const summary = (page) => page.locator("#summary").textContent();
const until = async (what, condition, patience = 20_000) => {
  const end = Date.now() + patience;
  while (!(await condition())) {
    assert.ok(Date.now() < end, `not within ${patience / 1000} s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
};
const finds = (page, pattern) => until(`finds ${pattern}`, async () => pattern.test(await summary(page)));
const rename = (page, names) => page.getByLabel("What to find").fill(names);

/** The scene as frames of a camera (JPEG, one after the other) and as a video file. */
async function makeVideos(page) {
  const { jpeg, webm } = await page.evaluate(async () => {
    const bitmap = await createImageBitmap(await (await fetch("scenes/park.png")).blob());
    const canvas = Object.assign(document.createElement("canvas"), { width: 640, height: 480 });
    const context = canvas.getContext("2d");
    context.drawImage(bitmap, 0, 0, 640, 480);
    const text = async (blob) => {
      const bytes = new Uint8Array(await blob.arrayBuffer());
      return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
    };
    const jpeg = await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.95));
    const recorder = new MediaRecorder(canvas.captureStream(25), { mimeType: "video/webm;codecs=vp8" });
    const parts = [];
    recorder.ondataavailable = ({ data }) => parts.push(data);
    recorder.start();
    const began = performance.now();
    while (performance.now() - began < 2000) {
      context.drawImage(bitmap, 0, 0, 640, 480);
      await new Promise(requestAnimationFrame);
    }
    await new Promise((resolve) => {
      recorder.onstop = resolve;
      recorder.stop();
    });
    return { jpeg: await text(jpeg), webm: await text(new Blob(parts)) };
  });
  const frame = Buffer.from(jpeg, "base64");
  const camera = join(temporary, "camera.mjpeg");
  writeFileSync(camera, Buffer.concat(Array(20).fill(frame)));
  return { camera, webm: Buffer.from(webm, "base64"), jpeg: frame };
}

async function images({ page }) {
  await shot(page, "empty");
  await page.getByLabel("Drawn scene").selectOption("park");
  await finds(page, /\d dog/);
  const all = Number(await page.locator("#count").textContent());
  assert.ok(all >= 4, `${all} found`);

  await page.getByLabel("Threshold").fill("0.95");
  await until("a high threshold leaves fewer", async () => Number(await page.locator("#count").textContent()) < all);
  await page.getByLabel("Threshold").fill("0.3");
  await until("and a low one gives them back", async () => Number(await page.locator("#count").textContent()) === all);
  assert.equal(await page.locator("#threshold-value").textContent(), "0.30");

  await rename(page, "tree");
  await finds(page, /^Found \d+ tree\.$/);
  assert.equal(await page.locator("#classes li").count(), 1);
  await page.getByText("Names that the built-in model knows").click();
  await page.locator("#vocabulary").getByRole("button", { name: "dog", exact: true }).click();
  assert.equal(await page.getByLabel("What to find").inputValue(), "tree, dog");
  await finds(page, /\d tree, \d dog/);
  await page.getByText("Names that the built-in model knows").click();

  await rename(page, "");
  await page.getByText("no names: write at least one, such as dog").waitFor();
  await rename(page, "dog");
  await finds(page, /^Found \d dog\.$/);

  const colors = () => page.evaluate(() => {
    const canvas = document.getElementById("view");
    return canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.reduce((sum, value) => sum + value, 0);
  });
  const masked = await colors();
  await page.getByLabel("Masks").uncheck();
  await until("without masks the image differs", async () => (await colors()) !== masked);
  await page.getByLabel("Masks").check();
  await until("with masks it is as before", async () => (await colors()) === masked);

  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Save image" }).click();
  const saved = readFileSync(await (await download).path());
  assert.equal(saved.subarray(1, 4).toString(), "PNG");
}

/** Where a detection of the class is on the page, by asking the page's own detector. */
async function boxOf(page, name) {
  return page.evaluate(async (name) => {
    const { Detector } = await import("./package/index.js");
    const detector = await Detector.open({ masks: false });
    const canvas = document.getElementById("view");
    const bitmap = await createImageBitmap(await (await fetch("scenes/park.png")).blob());
    const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
    context.drawImage(bitmap, 0, 0);
    detector.setPrompts([name]);
    const [{ box }] = detector.detect(context.getImageData(0, 0, bitmap.width, bitmap.height)).detections;
    detector.free();
    const area = canvas.getBoundingClientRect();
    const [sx, sy] = [area.width / bitmap.width, area.height / bitmap.height];
    return { x1: area.x + box[0] * sx, y1: area.y + box[1] * sy, x2: area.x + box[2] * sx, y2: area.y + box[3] * sy };
  }, name);
}

async function drag(page, { x1, y1, x2, y2 }) {
  await page.mouse.move(x1, y1);
  await page.mouse.down();
  await page.mouse.move((x1 + x2) / 2, (y1 + y2) / 2);
  await page.mouse.move(x2, y2);
  await page.mouse.up();
}

async function examples({ page }) {
  await page.getByLabel("Drawn scene").selectOption("park");
  await rename(page, "dog");
  await finds(page, /\d dog/);
  const [dog, tree] = [await boxOf(page, "dog"), await boxOf(page, "tree")];
  await page.locator("label", { hasText: /^Wanted$/ }).click();
  await page.getByText("Draw a box with the mouse.").waitFor();
  await page.getByLabel("Class of the example").selectOption({ label: "a new class: what the box shows" });
  await drag(page, tree);
  await page.getByText(/^wanted: new class/).waitFor();
  await finds(page, /like the example/);
  await shot(page, "examples");

  await page.locator("label", { hasText: /^Unwanted$/ }).click();
  await page.getByLabel("Class of the example").selectOption("dog");
  await drag(page, dog);
  await page.getByText(/^unwanted: dog/).waitFor();
  assert.equal(await page.locator("#examples li").count(), 2);
  for (const left of [1, 0]) {
    await page.getByRole("button", { name: /^Remove/ }).first().click();
    await until("the example is removed", async () => (await page.locator("#examples li").count()) === left);
  }

  // The same with the keyboard.
  await page.locator("label", { hasText: /^Wanted$/ }).click();
  await page.locator("#view").focus();
  for (const key of ["ArrowLeft", "ArrowUp", "Enter", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowDown", "ArrowDown", "Enter"]) {
    await page.keyboard.press(key);
  }
  await page.getByText(/^wanted: dog/).waitFor();
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#examples li").count(), 1);
  await page.locator("label", { hasText: /^Off$/ }).click();
}

async function models({ page }) {
  await page.getByLabel("Drawn scene").selectOption("park");
  await rename(page, "dog");
  await finds(page, /\d dog/);
  await page.locator("#folder").setInputFiles(join(folder, "package/model"));
  await page.getByText(/^Your model, model: /).waitFor();
  await finds(page, /\d dog/);
  await page.getByRole("button", { name: "Back to the built-in model" }).click();
  await page.getByText(/^Built-in model: /).waitFor();
  await page.locator("#folder").setInputFiles(join(folder, "scenes"));
  await page.getByText("this folder has no model.json").waitFor();
  await page.locator("#file").setInputFiles({ name: "broken.png", mimeType: "image/png", buffer: Buffer.from("no image") });
  await page.getByText("cannot read broken.png").waitFor();
}

async function videoFile({ page }, webm) {
  await rename(page, "tree, dog");
  await page.locator("#file").setInputFiles({ name: "park.webm", mimeType: "video/webm", buffer: webm });
  await finds(page, /dog/);
  await page.getByLabel("Follow in video").check();
  await until("frames are counted", async () => /\d/.test(await page.locator("#fps").textContent()));
  await page.getByRole("button", { name: "Pause" }).click();
  const before = await page.locator("#latency").textContent();
  await page.getByRole("button", { name: "Continue" }).click();
  await until("it goes on", async () => (await page.locator("#latency").textContent()) !== before);
}

async function dropped({ page }, jpeg) {
  await page.evaluate((text) => {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const data = new DataTransfer();
    data.items.add(new File([bytes], "dropped.jpg", { type: "image/jpeg" }));
    for (const type of ["dragenter", "dragover", "drop"]) {
      document.getElementById("drop").dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
    }
  }, jpeg.toString("base64"));
  await finds(page, /dog/);
}

async function camera({ page }) {
  await rename(page, "person, dog, car, tree");
  await page.getByRole("button", { name: "Camera" }).click();
  await finds(page, /\d dog/);
  const rate = async (masks) => {
    await page.getByLabel("Masks").setChecked(masks);
    await new Promise((resolve) => setTimeout(resolve, 6000));
    return `${await page.locator("#fps").textContent()} (${await page.locator("#latency").textContent()} each)`;
  };
  const [withMasks, boxesOnly] = [await rate(true), await rate(false)];
  console.log(`camera 640x480, four names, frames a second: ${withMasks} with masks, ${boxesOnly} without`);
  await page.getByLabel("Masks").check();
  await finds(page, /\d dog/);
  // An example in a frozen frame, searched for in those that follow.
  await page.locator("label", { hasText: /^Wanted$/ }).click();
  await page.getByLabel("Class of the example").selectOption({ label: "a new class: what the box shows" });
  await new Promise((resolve) => setTimeout(resolve, 500));
  await drag(page, await boxOf(page, "tree"));
  await page.getByText(/^wanted: new class/).waitFor();
  await page.locator("label", { hasText: /^Off$/ }).click();
  await finds(page, /like the example/);
  await shot(page, "camera");
}

async function keyboard({ page }) {
  // Every control is reached with Tab, in the order of the page, and has a name.
  await page.evaluate(() => document.body.focus());
  const seen = [];
  for (let presses = 0; presses < 30; presses++) {
    await page.keyboard.press("Tab");
    const focused = await page.evaluate(() => {
      const { activeElement: element } = document;
      const label = element.getAttribute("aria-label") ?? element.labels?.[0]?.textContent ?? element.textContent;
      return element === document.body ? undefined : { id: element.id, name: label.trim() };
    });
    if (focused === undefined) break;
    assert.ok(focused.name, `a control without a name: ${focused.id}`);
    seen.push(focused.id);
  }
  for (const id of ["camera", "open", "scene", "view", "names", "threshold", "masks", "tracks", "example-class", "own-model"]) {
    assert.ok(seen.includes(id), `Tab does not reach ${id}: ${seen}`);
  }
}

const first = await visit();
const videos = await makeVideos(first.page);
const steps = [["images", images], ["examples", examples], ["models", models], ["keyboard", keyboard],
  ["video file", (visitor) => videoFile(visitor, videos.webm)], ["dropped", (visitor) => dropped(visitor, videos.jpeg)]];
for (const [name, step] of steps) {
  await step(first);
  console.log(`${name}: as expected`);
}
await first.close();

const live = await visit({ camera: videos.camera });
await camera(live);
console.log("camera: as expected");
await live.close();

for (const [name, options] of [
  ["light", { colorScheme: "light" }],
  ["dark", { colorScheme: "dark" }],
  ["phone", { colorScheme: "light", viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true }],
]) {
  const visitor = await visit(options);
  await visitor.page.getByLabel("Drawn scene").selectOption("park");
  await finds(visitor.page, /\d dog/);
  const overflow = await visitor.page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  assert.ok(overflow <= 0, `${name}: the page is ${overflow} px too wide`);
  await shot(visitor.page, name);
  await visitor.close();
}
server.close();
// One file is meant not to be readable; the browser says so in the console, too.
assert.deepEqual(problems, [], "requests to other places, or errors in the console");
console.log("page: all as expected");
