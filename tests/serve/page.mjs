// Every control of the page of `ocelli serve` in Chromium: with the mouse, with the keyboard alone, on a phone, with a fake camera.
//
// usage: PLAYWRIGHT=folder-with-node_modules node page.mjs URL IMAGE FOLDER
// The server at URL has a gallery of a data set. Screenshots are written to FOLDER.

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";

import { change, close, count, folder, names, open, image, step, text, url } from "./browser.mjs";

const NAMES = "person, tree, dog, butterfly, bicycle, kite, moon";

await step("an example where the page is empty", async () => {
  const page = await open();
  await page.screenshot({ path: `${folder}/empty.png` });
  await names(page);
  await change(page, () => page.locator("#example").click());
  const fitting = (await page.locator("#names").inputValue()).split(", ");
  assert.ok(fitting.length > 2, "it comes with names that fit");
  const found = await page.locator("#found .row").allTextContents();
  for (const name of fitting) assert.ok(found.some((row) => row.startsWith(name)), `${name} is found: ${found}`);
  assert.ok(await page.locator("#drop").isHidden());
  assert.ok(await page.locator("#click").isHidden(), "the built-in model takes no clicks");
  await page.screenshot({ path: `${folder}/example.png` });
  await page.route("**/page/example.png", (route) => route.abort());
  await page.reload();
  await page.locator("#example").click();
  await page.waitForFunction(() => !document.getElementById("problem").hidden);
  await page.context().close();
});

const page = await open();

await step("an image and names", async () => {
  await page.setInputFiles("#file", image);
  await page.waitForFunction(() => document.getElementById("status").textContent === "Type what to find.");
  await change(page, () => page.locator("#names").pressSequentially(NAMES, { delay: 5 }));
  assert.ok(await count(page, "found") >= 2, await text(page, "status"));
  await page.screenshot({ path: `${folder}/light.png` });
  await names(page);
});

const all = await count(page, "found");

await step("a word that the model does not know", async () => {
  await change(page, () => page.locator("#names").fill("teddy baer"), "does not know");
  assert.match(await text(page, "status"), /does not know “teddy baer”; did you mean “teddy bear”\?/);
  await change(page, () => page.locator("#names").fill("red car"), "does not know");
  assert.match(await text(page, "status"), /does not know “red car”; did you mean “car”\?/);
  await change(page, () => page.locator("#names").fill(NAMES));
  assert.equal(await count(page, "found"), all);
});

await step("thresholds and masks", async () => {
  await change(page, () => page.locator("#confidence").fill("0.95"));
  assert.ok(await count(page, "found") < all, "a higher confidence finds less");
  assert.equal(await text(page, "confidence-value"), "0.95");
  await change(page, () => page.locator("#confidence").fill("0.3"));
  await change(page, () => page.locator("#overlap").fill("0.2"));
  await change(page, () => page.locator("#overlap").fill("0.7"));
  assert.equal(await count(page, "found"), all);
  const pixels = () => page.evaluate(() => document.getElementById("stage").toDataURL());
  const masked = await pixels();
  await change(page, () => page.locator("#masks").uncheck());
  assert.notEqual(await pixels(), masked, "masks are drawn");
  await change(page, () => page.locator("#masks").check());
  assert.equal(await pixels(), masked);
});

await step("one of what was found", async () => {
  const row = page.locator("#found .row").first();
  await row.click();
  assert.equal(await row.getAttribute("aria-pressed"), "true");
  await row.click();
  assert.equal(await row.getAttribute("aria-pressed"), "false");
});

async function downloaded(button) {
  const [file] = await Promise.all([page.waitForEvent("download"), page.locator(button).click()]);
  return { name: file.suggestedFilename(), bytes: await readFile(await file.path()) };
}

await step("JSON, YOLO, COCO and the image", async () => {
  const json = await downloaded("#download");
  const report = JSON.parse(json.bytes);
  assert.equal(report.images[0].detections.length, all);
  assert.ok(report.images[0].detections.every((one) => one.mask.counts));
  await page.locator("#format").selectOption("yolo");
  const yolo = await downloaded("#download");
  assert.match(yolo.name, /\.txt$/);
  assert.match(yolo.bytes.toString(), /^(\d+( [01]\.\d{6}){4}\n)+$/);
  await page.locator("#copy").click();
  await page.waitForFunction(() => document.getElementById("status").textContent === "Copied.");
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), yolo.bytes.toString());
  await page.locator("#format").selectOption("coco");
  const coco = JSON.parse((await downloaded("#download")).bytes);
  assert.equal(coco.annotations.length, all);
  assert.ok(coco.annotations.every((one) => one.area > 0 && one.area <= one.bbox[2] * one.bbox[3] * 1.1), "areas of masks fit their boxes");
  await writeFile(`${folder}/coco.json`, JSON.stringify(coco));
  const drawn = await downloaded("#download-image");
  assert.deepEqual([...drawn.bytes.subarray(1, 4)], [..."PNG"].map((letter) => letter.charCodeAt(0)));
});

await step("examples, wanted and unwanted", async () => {
  const box = await page.locator("#stage").boundingBox();
  const drag = async (from, to) => {
    await page.mouse.move(box.x + box.width * from[0], box.y + box.height * from[1]);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * to[0], box.y + box.height * to[1], { steps: 4 });
    await page.mouse.up();
  };
  await page.locator("#draw-wanted").click();
  assert.equal(await page.locator("#draw-wanted").getAttribute("aria-pressed"), "true");
  await change(page, () => drag([0.2, 0.2], [0.4, 0.5]));
  assert.equal(await count(page, "examples"), 1);
  // Moved with the mouse, its size changed at a corner.
  await change(page, () => drag([0.3, 0.3], [0.35, 0.35]));
  await change(page, () => drag([0.45, 0.55], [0.5, 0.6]));
  await page.locator("#draw-unwanted").click();
  await change(page, () => drag([0.6, 0.6], [0.8, 0.8]));
  assert.equal(await count(page, "examples"), 2);
  await page.screenshot({ path: `${folder}/examples.png` });
  await change(page, () => page.locator("#examples .remove").first().click());
  await change(page, () => page.locator("#examples .remove").first().click());
  assert.equal(await count(page, "examples"), 0);
});

await step("the vocabulary", async () => {
  await page.locator("#vocabulary summary").click();
  await change(page, () => page.locator("#vocabulary-names button").first().click());
  await page.locator("#vocabulary summary").click();
});

await step("refusals are shown", async () => {
  const alert = () => page.waitForFunction(() => !document.getElementById("problem").hidden).then(() => text(page, "problem"));
  await page.setInputFiles("#file-again", { name: "notes.png", mimeType: "image/png", buffer: Buffer.from("no image") });
  assert.match(await alert(), /cannot show this file/);
  // Of a file, the browser is told the name alone.
  await writeFile(`${folder}/huge.png`, Buffer.alloc(34_000_000));
  await page.setInputFiles("#file-again", `${folder}/huge.png`);
  await page.waitForFunction(() => /the server takes/.test(document.getElementById("problem").textContent));
  await page.locator("#names").fill("a".repeat(300));
  await page.waitForFunction(() => /at most 200 characters/.test(document.getElementById("problem").textContent));
  await page.locator("#names").fill(Array.from({ length: 120 }, (_, at) => `n${at}`).join(","));
  await page.waitForFunction(() => /at most 100/.test(document.getElementById("problem").textContent));
  // Busy twice, as Retry-After says, then answered.
  let tries = 0;
  await page.route("**/v1/detect", (route) => tries++ < 2 ? route.fulfill({ status: 503, headers: { "retry-after": "1" }, json: { error: "busy" } }) : route.continue());
  await change(page, () => page.locator("#names").fill(NAMES));
  assert.equal(tries, 3);
  await page.unroute("**/v1/detect");
  await page.route("**/v1/detect", (route) => route.abort());
  await page.locator("#names").fill("dog");
  assert.ok(await alert());
  await page.unroute("**/v1/detect");
  await change(page, () => page.locator("#names").fill(NAMES));
  assert.ok(await page.locator("#problem").isHidden());
});

await step("the fake camera", async () => {
  await page.locator("#tab-camera").click();
  await page.locator("#camera-start").click();
  await page.waitForFunction(() => /[1-9].* frames a second/.test(document.getElementById("camera-rate").textContent));
  await page.locator("#names").fill("moon");
  await page.waitForFunction(() => /camera's image, \d+ found/.test(document.getElementById("camera").getAttribute("aria-label")));
  await page.locator("#camera-which").selectOption({ index: 1 });
  await page.waitForFunction(() => /[1-9].* frames a second/.test(document.getElementById("camera-rate").textContent));
  assert.ok(await page.evaluate(() => document.getElementById("camera").width > 300));
  await page.screenshot({ path: `${folder}/camera.png` });
  await page.locator("#camera-stop").click();
  assert.ok(await page.locator("#camera-start").isEnabled());
});

await step("what is drawn while a save is under way stays", async () => {
  const page = await open();
  await page.locator("#tab-gallery").click();
  await page.locator("#thumbnails button").nth(1).click();
  await page.waitForFunction(() => document.getElementById("gallery-name").textContent !== "");
  const before = await count(page, "found");
  const wait = (state) => page.waitForFunction((state) => document.getElementById("gallery-state").textContent === state, state);
  await page.route("**/v1/gallery/*", async (route) => {
    if (route.request().method() === "PUT") await new Promise((done) => setTimeout(done, 1500));
    await route.continue();
  });
  await page.locator("#label-add").click();
  const answered = page.waitForResponse((response) => response.request().method() === "PUT");
  await page.keyboard.press("Control+s");
  await page.locator("#label-add").click();
  await page.keyboard.press("Shift+ArrowRight");
  await answered;
  await page.waitForFunction(() => /save again/.test(document.getElementById("status").textContent));
  assert.equal(await text(page, "gallery-state"), "Not saved");
  assert.equal(await count(page, "found"), before + 2, "the second box is still there");
  // The box that was saved is not saved twice, also if the later change is taken back.
  await page.locator("#label-undo").click();
  await page.locator("#label-undo").click();
  assert.equal(await count(page, "found"), before + 1);
  await page.locator("#label-save").click();
  await wait("Corrected");
  await page.locator("#gallery-back").click();
  await page.locator("#thumbnails button").nth(1).click();
  await wait("Corrected");
  assert.equal(await count(page, "found"), before + 1);
  await page.context().close();
});

await step("suggestions are what their labels say", async () => {
  const page = await open();
  // Names that differ in case, which are one to the server, and more than it takes at once.
  const classes = ["Cake", "cake", ...Array.from({ length: 150 }, (_, at) => `n${at}`), "house"];
  await page.route("**/v1/gallery?from=0", async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...await response.json(), classes } });
  });
  let asked = 0;
  await page.route("**/v1/detect", (route) => {
    asked += 1;
    const hasHouse = route.request().postData().includes('"house"');
    route.fulfill({ json: { width: 9, height: 9, detections: hasHouse ? [{ class_id: 0, label: "house", score: 0.9, box: [1, 1, 30, 30] }] : [], timing_ms: { total: 1 } } });
  });
  await page.locator("#tab-gallery").click();
  await page.locator("#thumbnails button").nth(2).click();
  await page.waitForFunction(() => document.getElementById("gallery-name").textContent !== "");
  await page.locator("#label-detect").click();
  await page.waitForFunction(() => document.getElementById("status").textContent.startsWith("1 added"));
  assert.equal(asked, 2);
  assert.match(await page.locator("#found .row").last().textContent(), /^house/);
  page.once("dialog", (dialog) => dialog.accept());
  await page.context().close();
});

await step("the address of an image", async () => {
  const page = await open();
  const { images } = await (await fetch(`${url}v1/gallery`)).json();
  await page.goto(`${url}#gallery=${images[3].id}`);
  await page.reload();
  await page.waitForFunction((name) => document.getElementById("gallery-name").textContent === name, images[3].name);
  assert.equal(await text(page, "status"), "");
  await page.context().close();
});

await step("the gallery", async () => {
  await page.locator("#tab-gallery").click();
  await page.locator("#thumbnails button").first().waitFor();
  await page.screenshot({ path: `${folder}/gallery.png` });
  await page.locator("#thumbnails button").first().click();
  await page.waitForFunction(() => document.getElementById("gallery-name").textContent !== "");
  const before = await count(page, "found");
  assert.doesNotMatch(await text(page, "status"), /Choose an image/);
  assert.equal(await text(page, "found-heading"), before === 1 ? "1 box" : `${before} boxes`);
  await page.locator("#label-add").click();
  assert.equal(await count(page, "found"), before + 1);
  assert.equal(await text(page, "gallery-state"), "Not saved");
  // The new box is in the middle: moved, then its size changed at a corner.
  const frame = await page.locator("#editor").boundingBox();
  const box = () => page.locator("#found .row").last().locator("span").last().textContent();
  const drag = async (from, to) => {
    await page.mouse.move(frame.x + frame.width * from[0], frame.y + frame.height * from[1]);
    await page.mouse.down();
    await page.mouse.move(frame.x + frame.width * to[0], frame.y + frame.height * to[1], { steps: 4 });
    await page.mouse.up();
  };
  const added = await box();
  await drag([0.5, 0.5], [0.55, 0.55]);
  const moved = await box();
  assert.notEqual(moved, added);
  await drag([0.65, 0.65], [0.7, 0.75]);
  const resized = await box();
  assert.notEqual(resized, moved);
  await page.locator("#label-undo").click();
  assert.equal(await box(), moved);
  await page.locator("#found .row").last().click();
  await page.locator("#label-class").selectOption({ index: 1 });
  await page.screenshot({ path: `${folder}/editor.png` });
  await page.locator("#label-save").click();
  await page.waitForFunction(() => document.getElementById("gallery-state").textContent === "Corrected");
  await page.locator("#label-detect").click();
  await page.waitForFunction(() => /added|Nothing new/.test(document.getElementById("status").textContent));
  await page.locator("#found .row").last().click();
  await page.locator("#label-remove").click();
  page.once("dialog", (dialog) => dialog.accept());
  await page.locator("#gallery-next").click();
  await page.waitForFunction(() => !document.getElementById("gallery-previous").disabled);
  await page.locator("#gallery-previous").click();
  await page.waitForFunction(() => document.getElementById("gallery-previous").disabled);
  assert.equal(await count(page, "found"), before + 1);
  assert.equal(await text(page, "gallery-state"), "Corrected");
  await page.locator("#gallery-back").click();
  assert.ok(await page.locator("#thumbnails").isVisible());
  await names(page);
});
await page.context().close();

await step("the keyboard alone", async () => {
  const keys = await open();
  const focused = () => keys.evaluate(() => document.activeElement.id || document.activeElement.className);
  const tabTo = async (id) => {
    for (let presses = 0; presses < 60; presses++) {
      if (await focused() === id) return;
      await keys.keyboard.press("Tab");
    }
    assert.fail(`Tab does not reach ${id}`);
  };
  await tabTo("tab-image");
  await keys.keyboard.press("ArrowRight");
  assert.equal(await focused(), "tab-camera");
  await keys.keyboard.press("ArrowLeft");
  await tabTo("file");
  const [chooser] = await Promise.all([keys.waitForEvent("filechooser"), keys.keyboard.press("Space")]);
  await chooser.setFiles(image);
  await keys.locator("#stage").waitFor();
  await tabTo("draw-wanted");
  await keys.keyboard.press("Space");
  assert.equal(await focused(), "stage");
  await change(keys, () => keys.keyboard.press("Enter"));
  assert.equal(await count(keys, "examples"), 1);
  await change(keys, async () => { await keys.keyboard.press("ArrowRight"); await keys.keyboard.press("Shift+ArrowDown"); });
  await tabTo("names");
  await change(keys, () => keys.keyboard.type(NAMES));
  assert.ok(await count(keys, "found") > 0);
  await tabTo("confidence");
  await change(keys, () => keys.keyboard.press("ArrowRight"));
  await tabTo("masks");
  await change(keys, () => keys.keyboard.press("Space"));
  await tabTo("copy");
  await keys.keyboard.press("Enter");
  await keys.waitForFunction(() => document.getElementById("status").textContent === "Copied.");
  await keys.locator("#tab-image").focus();
  await keys.keyboard.press("ArrowLeft");
  assert.equal(await focused(), "tab-gallery");
  await keys.locator("#thumbnails button").nth(1).waitFor();
  await keys.locator("#thumbnails button").nth(1).focus();
  await keys.keyboard.press("Enter");
  await keys.waitForFunction(() => document.activeElement.id === "editor");
  const before = await count(keys, "found");
  await keys.keyboard.press("n");
  await keys.keyboard.press("ArrowLeft");
  await keys.keyboard.press("Shift+ArrowRight");
  await keys.keyboard.press("Control+z");
  assert.equal(await count(keys, "found"), before + 1);
  await keys.keyboard.press("Control+s");
  await keys.waitForFunction(() => document.getElementById("gallery-state").textContent === "Corrected");
  await keys.locator("#found .row").last().focus();
  await keys.keyboard.press("Enter");
  await keys.keyboard.press("Delete");
  assert.equal(await count(keys, "found"), before);
  await keys.keyboard.press("Control+s");
  await keys.waitForFunction(() => document.getElementById("gallery-state").textContent === "Corrected");
  await keys.keyboard.press("]");
  await keys.keyboard.press("Escape");
  await keys.context().close();
});

await step("a phone, dark", async () => {
  const phone = await open({ viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true, colorScheme: "dark" });
  await phone.screenshot({ path: `${folder}/phone-start.png` });
  await phone.setInputFiles("#file", image);
  await change(phone, () => phone.locator("#names").fill(NAMES));
  await phone.locator("#draw-wanted").tap();
  await phone.locator("#draw-wanted").tap();
  await phone.screenshot({ path: `${folder}/phone.png`, fullPage: true });
  for (const tab of ["image", "camera", "gallery"]) {
    await phone.locator(`#tab-${tab}`).tap();
    const [wide, room] = await phone.evaluate(() => [document.scrollingElement.scrollWidth, innerWidth]);
    assert.ok(wide <= room, `${tab}: ${wide} pixels in ${room}`);
  }
  await phone.context().close();
  const dark = await open({ colorScheme: "dark" });
  await dark.setInputFiles("#file", image);
  await change(dark, () => dark.locator("#names").fill(NAMES));
  await dark.screenshot({ path: `${folder}/dark.png` });
  await dark.context().close();
});

await close();
console.log("the page works");
