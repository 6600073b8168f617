// Clicks on the page of `ocelli serve` in Chromium, whose model has a tracker: with the mouse, with the keyboard alone, on a phone.
//
// usage: PLAYWRIGHT=folder-with-node_modules node clicks.mjs URL IMAGE FOLDER

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";

import { change, close, count, folder, names, open, image, step, text } from "./browser.mjs";

const FOUND = "^Found object";
// Keeps what the page asks for.
const watch = () => {
  const { fetch } = window;
  window.asked = [];
  window.fetch = (path, options) => {
    if (path === "/v1/segment") window.asked.push(JSON.parse(options.body.get("request")).objects);
    return fetch(path, options);
  };
};
const asked = (page) => page.evaluate(() => window.asked.at(-1));

const page = await open({}, watch);
await page.setInputFiles("#file", image);
const at = async (x, y, options = {}) => {
  const box = await page.locator("#stage").boundingBox();
  return page.locator("#stage").click({ position: { x: box.width * x, y: box.height * y }, ...options });
};
const clicked = (x, y, options) => change(page, () => at(x, y, options), FOUND);
const pixels = () => page.evaluate(() => document.getElementById("stage").toDataURL());

await step("a click, one beside the object, and a box", async () => {
  await page.locator("#click").click();
  assert.equal(await page.locator("#click").getAttribute("aria-pressed"), "true");
  const before = await pixels();
  await clicked(0.5, 0.4);
  const [{ points, labels, box }] = await asked(page);
  assert.deepEqual([points.length, labels, box], [1, [1], undefined]);
  assert.equal(await count(page, "found"), 1);
  assert.notEqual(await pixels(), before, "the mask and the click are drawn");
  await clicked(0.1, 0.1, { button: "right" });
  assert.deepEqual((await asked(page))[0].labels, [1, 0]);
  await clicked(0.9, 0.1, { modifiers: ["Alt"] });
  assert.deepEqual((await asked(page))[0].labels, [1, 0, 0]);
  const frame = await page.locator("#stage").boundingBox();
  await change(page, async () => {
    await page.mouse.move(frame.x + frame.width * 0.3, frame.y + frame.height * 0.2);
    await page.mouse.down();
    await page.mouse.move(frame.x + frame.width * 0.7, frame.y + frame.height * 0.7, { steps: 4 });
    await page.mouse.up();
  }, FOUND);
  assert.equal((await asked(page))[0].box.length, 4);
  assert.match(await page.locator("#objects .row").textContent(), /1 object3 clicks, a box/);
  await page.screenshot({ path: `${folder}/click.png` });
  await names(page);
});

await step("another object, and back again", async () => {
  await page.locator("#click-new").click();
  await clicked(0.75, 0.6);
  assert.deepEqual((await asked(page)).length, 1, "only what changed is asked for");
  await page.keyboard.press("n");
  await clicked(0.2, 0.8);
  assert.deepEqual([await count(page, "objects"), await count(page, "found")], [3, 3]);
  await page.locator("#object-name").fill("traffic cone");
  assert.match(await page.locator("#found .row").nth(2).textContent(), /^traffic cone/);
  await page.screenshot({ path: `${folder}/clicks.png` });
  const three = await pixels();
  await page.locator("#objects .remove").first().click();
  assert.equal(await count(page, "found"), 2);
  await page.locator("#click-undo").click();
  assert.equal(await count(page, "found"), 3);
  await page.locator("#objects .row").nth(2).click();
  assert.equal(await pixels(), three);
  await page.keyboard.press("Control+z");
  assert.deepEqual([await count(page, "objects"), await count(page, "found")], [2, 2]);
  for (let presses = 0; presses < 4; presses++) await page.keyboard.press("Control+z");
  assert.equal(await count(page, "objects"), 1);
  await page.keyboard.press("Control+z");
  assert.ok(await page.locator("#click-undo").isDisabled());
  assert.deepEqual([await count(page, "objects"), await count(page, "found")], [0, 0]);
});

await step("names and clicks in one list, and its formats", async () => {
  await clicked(0.5, 0.4);
  await page.locator("#object-name").fill("kite");
  await page.locator("#confidence").fill("0.05");
  await change(page, () => page.locator("#names").fill("dog, kite"), "found in");
  const rows = await page.locator("#found .row").allTextContents();
  assert.match(rows.at(-1), /^kite/);
  assert.equal(await text(page, "found-heading"), `Found ${rows.length}`);
  const download = async () => {
    const [file] = await Promise.all([page.waitForEvent("download"), page.locator("#download").click()]);
    return (await readFile(await file.path())).toString();
  };
  const [{ width, detections }] = JSON.parse(await download()).images;
  const { label, class_id, mask, color } = detections.at(-1);
  assert.deepEqual([detections.length, label, class_id, color], [rows.length, "kite", 1, undefined], "a class that was asked for");
  assert.equal(mask.size[1], width);
  await page.locator("#format").selectOption("coco");
  const coco = JSON.parse(await download());
  assert.deepEqual(coco.categories.map((one) => one.name), ["dog", "kite"]);
  assert.equal(coco.annotations.at(-1).category_id, 2);
  await page.locator("#object-name").fill("");
  assert.deepEqual(JSON.parse(await download()).categories.map((one) => one.name), ["dog", "kite", "object"]);
  await change(page, () => page.locator("#names").fill(""), "^$");
  await page.waitForFunction(() => document.querySelectorAll("#found li").length === 1);
});

await step("refusals are shown, and examples end clicking", async () => {
  await page.route("**/v1/segment", (route) => route.fulfill({ status: 400, json: { error: "no such place" } }));
  await at(0.4, 0.4);
  await page.waitForFunction(() => document.getElementById("problem").textContent === "no such place");
  await page.unroute("**/v1/segment");
  await clicked(0.45, 0.4);
  assert.ok(await page.locator("#problem").isHidden());
  await page.locator("#draw-wanted").click();
  assert.equal(await page.locator("#click").getAttribute("aria-pressed"), "false");
  assert.ok(await page.locator("#click-bar").isHidden());
  await page.locator("#click").click();
  assert.equal(await page.locator("#draw-wanted").getAttribute("aria-pressed"), "false");
  // Another image has no objects.
  await page.setInputFiles("#file-again", image);
  await page.waitForFunction(() => document.querySelectorAll("#objects li").length === 0);
  await page.context().close();
});

await step("the keyboard alone", async () => {
  const keys = await open({}, watch);
  const status = (pattern) => keys.waitForFunction((pattern) => new RegExp(pattern).test(document.getElementById("status").textContent), pattern);
  await keys.setInputFiles("#file", image);
  await keys.locator("#click").waitFor();
  await keys.locator("#click").focus();
  await keys.keyboard.press("Enter");
  assert.equal(await keys.evaluate(() => document.activeElement.id), "stage");
  await keys.keyboard.press("ArrowRight");
  await status("^Cursor at \\d+, \\d+");
  await change(keys, () => keys.keyboard.press("Enter"), FOUND);
  const [[x, y]] = (await asked(keys))[0].points;
  assert.match(await keys.locator("#stage").getAttribute("aria-label"), /1 found: object; object 1, 1 click, fits with [01]\.\d\d/);
  await keys.keyboard.press("Shift+ArrowUp");
  await change(keys, () => keys.keyboard.press("Shift+Enter"), FOUND);
  const [{ points, labels }] = await asked(keys);
  assert.deepEqual(labels, [1, 0]);
  assert.ok(points[1][0] === x && points[1][1] < y - 10, `${points}`);
  await keys.keyboard.press("n");
  await status("begins object 2");
  await keys.keyboard.press("b");
  for (const key of ["Shift+ArrowRight", "Shift+ArrowDown"]) await keys.keyboard.press(key);
  await change(keys, () => keys.keyboard.press("b"), FOUND);
  assert.equal((await asked(keys))[0].box.length, 4);
  await keys.keyboard.press("Control+z");
  await status("^Taken back");
  assert.equal(await count(keys, "objects"), 1);
  await keys.keyboard.press("Escape");
  assert.equal(await keys.locator("#click").getAttribute("aria-pressed"), "false");
  await keys.context().close();
});

await step("a wrong mask of a data set is mended by clicks", async () => {
  const gallery = await open({}, watch);
  await gallery.locator("#tab-gallery").click();
  await gallery.locator("#thumbnails button").first().click();
  await gallery.waitForFunction(() => !document.getElementById("gallery-editor").hidden);
  const on = async (x, y, options = {}) => {
    const box = await gallery.locator("#editor").boundingBox();
    return gallery.locator("#editor").click({ position: { x: box.width * x, y: box.height * y }, ...options });
  };
  const boxes = await count(gallery, "found");
  assert.ok(boxes > 0);
  await gallery.locator("#found .row").first().click();
  const before = await gallery.evaluate(() => document.getElementById("editor").toDataURL());
  await gallery.keyboard.press("m");
  assert.equal(await gallery.locator("#label-clicks").getAttribute("aria-pressed"), "true");
  await change(gallery, () => on(0.4, 0.4), "^The mask fits");
  const [[first]] = [await asked(gallery)];
  assert.deepEqual([first.points.length, first.labels, first.box.length], [1, [1], 4], "the box that is there says which object is meant");
  await change(gallery, () => on(0.9, 0.9, { modifiers: ["Alt"] }), "^The mask fits");
  assert.deepEqual((await asked(gallery))[0].labels, [1, 0]);
  assert.notEqual(await gallery.evaluate(() => document.getElementById("editor").toDataURL()), before);
  // Another object, by a click alone.
  await gallery.keyboard.press("n");
  await change(gallery, () => on(0.7, 0.3), "^The mask fits");
  assert.equal((await asked(gallery))[0].box, undefined);
  assert.equal(await count(gallery, "found"), boxes + 1);
  await gallery.locator("#label-undo").click();
  assert.equal(await count(gallery, "found"), boxes);
  await change(gallery, () => on(0.7, 0.3), "^The mask fits");
  await gallery.screenshot({ path: `${folder}/gallery-clicks.png` });
  await names(gallery);
  await change(gallery, () => gallery.keyboard.press("Control+s"), "^Saved");
  const saved = await gallery.evaluate(async () => {
    const { images } = await (await fetch("/v1/gallery")).json();
    return (await fetch(`/v1/gallery/${images[0].id}`)).json();
  });
  assert.ok(saved.corrected && saved.instances.length === boxes + 1);
  assert.ok(saved.instances.every((one) => one.polygon.length > 2));
  await gallery.keyboard.press("Escape");
  assert.equal(await gallery.locator("#label-clicks").getAttribute("aria-pressed"), "false");
  await gallery.keyboard.press("Escape");
  assert.ok(await gallery.locator("#gallery-list").isVisible());
  await gallery.context().close();
});

await step("a phone, dark", async () => {
  const phone = await open({ viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true, colorScheme: "dark" });
  await phone.setInputFiles("#file", image);
  await phone.locator("#click").tap();
  await change(phone, () => phone.locator("#stage").tap(), FOUND);
  const [wide, room] = await phone.evaluate(() => [document.scrollingElement.scrollWidth, innerWidth]);
  assert.ok(wide <= room, `${wide} pixels in ${room}`);
  await phone.screenshot({ path: `${folder}/click-phone.png`, fullPage: true });
  await phone.context().close();
});

await close();
console.log("clicks work");
