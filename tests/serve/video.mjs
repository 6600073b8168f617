// The page's videos in Chromium: a server whose folder has a video named "street", and a model with a tracker.
//
// usage: PLAYWRIGHT=folder-with-node_modules node video.mjs URL UPLOAD.mp4 FOLDER

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";

import { change, close, count, folder, names, open, image as upload, step, text } from "./browser.mjs";

const status = (page, pattern) => page.waitForFunction((pattern) => new RegExp(pattern).test(document.getElementById("status").textContent), pattern);
const pixels = (page) => page.evaluate(() => document.getElementById("video-stage").toDataURL());
const at = async (page, x, y, options = {}) => {
  const box = await page.locator("#video-stage").boundingBox();
  return page.locator("#video-stage").click({ position: { x: box.width * x, y: box.height * y }, ...options });
};
const clicked = (page, x, y, options) => change(page, () => at(page, x, y, options), "^Object \\d+, \\d+ click");
// The range of the frame, as a person moves it.
const scrub = async (page, frame) => {
  await page.locator("#video-frame").fill(String(frame));
  await page.waitForFunction((frame) => document.getElementById("video-stage").getAttribute("aria-label").includes(`frame ${frame} of`), frame);
};
// Clicks, and waits until an element was shown, however short.
const shows = async (page, id, work) => {
  await page.evaluate((id) => {
    const element = document.getElementById(id);
    window.shown = new Promise((done) => new MutationObserver(() => { if (!element.hidden) done(); }).observe(element, { attributes: true, attributeFilter: ["hidden"] }));
  }, id);
  await work();
  await page.evaluate(() => window.shown);
};
const focused = (page) => page.evaluate(() => document.activeElement.getAttribute("aria-label"));
const rows = (page) => page.locator("#video-objects .row").allTextContents();
const session = async (page) => `/v1/sessions/${(await page.evaluate(() => location.hash)).split("=")[1]}`;

const page = await open();

await step("a video of the server's folder", async () => {
  await page.locator("#tab-video").click();
  await page.waitForFunction(() => document.getElementById("video-name").options.length > 0);
  assert.deepEqual(await page.locator("#video-name option").allTextContents(), ["street"]);
  await page.locator("#video-open").click();
  await status(page, "^Type a word");
  assert.match(await text(page, "video-number"), /^0 \/ \d\d$/);
  assert.ok(await page.locator("#video-follow").isDisabled(), "nothing to follow yet");
  await page.screenshot({ path: `${folder}/video-open.png` });
  await names(page);
});

await step("clicks, and a click that is taken back", async () => {
  const before = await pixels(page);
  await clicked(page, 0.3, 0.5);
  assert.deepEqual((await rows(page)).length, 1);
  assert.match((await rows(page))[0], /^1 object/);
  assert.notEqual(await pixels(page), before, "the mask and the click are drawn");
  await clicked(page, 0.9, 0.1, { button: "right" });
  await page.keyboard.press("Control+z");
  await status(page, "^Object 1, 1 click on");
  await page.locator("#video-new").click();
  await clicked(page, 0.7, 0.5);
  assert.equal((await rows(page)).length, 2);
  await page.locator("#video-undo").click();
  await status(page, "Object 2 is removed");
  assert.equal((await rows(page)).length, 1);
  await page.locator("#video-new").click();
  await at(page, 0.1, 0.1, { button: "right" });
  await page.waitForFunction(() => /Click on the object first/.test(document.getElementById("problem").textContent));
  await clicked(page, 0.7, 0.5);
  assert.ok(await page.locator("#problem").isHidden());
});

await step("follow to the end, and look at any frame", async () => {
  await shows(page, "video-running", () => page.locator("#video-follow").click());
  await status(page, "^\\d+ frames in ");
  const [, frames] = (await text(page, "video-number")).split(" / ").map(Number);
  // Random masks are empty now and then.
  assert.ok((await rows(page)).every((row) => Number(/(\d+) frames$/.exec(row)[1]) > frames / 2), `${await rows(page)}`);
  await scrub(page, frames - 3);
  const late = await pixels(page);
  await scrub(page, 2);
  assert.notEqual(await pixels(page), late);
  await scrub(page, frames - 3);
  assert.equal(await pixels(page), late, "the same frame looks the same");
  await page.screenshot({ path: `${folder}/video.png` });
  await page.keyboard.press("Escape");
  await page.locator("#video-stage").focus();
  await page.keyboard.press(",");
  await page.waitForFunction((frame) => document.getElementById("video-number").textContent.startsWith(`${frame} /`), frames - 4);
  await page.keyboard.press(".");
  await page.waitForFunction((frame) => document.getElementById("video-number").textContent.startsWith(`${frame} /`), frames - 3);
  await page.locator("#video-play").click();
  await page.waitForFunction((frames) => document.getElementById("video-number").textContent === `${frames} / ${frames}`, frames);
  await page.waitForFunction(() => document.getElementById("video-play").textContent === "Play");
});

await step("names, a mended frame, and a run back", async () => {
  await page.locator("#video-objects .row").first().click();
  await page.locator("#video-object").fill("traffic cone");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelector("#video-objects .row").textContent.startsWith("1 traffic cone"));
  await scrub(page, 10);
  await clicked(page, 0.4, 0.5);
  assert.match(await text(page, "status"), /^Object 1, 1 click on frame 10/);
  await page.locator("#video-direction").selectOption("both");
  await page.locator("#video-follow").click();
  await status(page, "^\\d+ frames in ");
});

await step("another page sees the same session", async () => {
  const other = await page.context().newPage();
  await other.goto(page.url());
  await other.waitForFunction(() => document.querySelectorAll("#video-objects li").length === 2);
  assert.match((await rows(other))[0], /^1 traffic cone/);
  await scrub(page, 4);
  await scrub(other, 4);
  // A name and a removal there are seen here, and the other way around.
  await other.locator("#video-objects .row").nth(1).click();
  await other.locator("#video-object").fill("box");
  await other.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelectorAll("#video-objects .row")[1].textContent.startsWith("3 box"));
  await page.locator("#video-objects .remove").nth(1).click();
  await other.waitForFunction(() => document.querySelectorAll("#video-objects li").length === 1);
  // A run of one page, which the other one cannot disturb, and which it can stop.
  await page.locator("#video-direction").selectOption("both");
  await page.locator("#video-follow").click();
  await other.waitForFunction(() => !document.getElementById("video-elsewhere").hidden, null, { timeout: 3000 }).catch(() => {});
  await status(page, "^\\d+ frames in ");
  await other.waitForFunction(() => document.getElementById("video-running").hidden);
  await other.close();
});

await step("files", async () => {
  const file = async (format) => {
    const [download] = await Promise.all([page.waitForEvent("download", { timeout: 120_000 }), page.locator(`[data-export=${format}]`).click()]);
    return [download.suggestedFilename(), await readFile(await download.path())];
  };
  const [name, json] = await file("youtube-vis");
  const youtube = JSON.parse(json);
  assert.deepEqual([name, youtube.categories.map((one) => one.name)], ["objects.json", ["traffic cone"]]);
  const [zip, archive] = await file("masks");
  assert.deepEqual([zip, archive.subarray(0, 2).toString()], ["masks.zip", "PK"]);
  const [film, video] = await file("mp4");
  assert.deepEqual([film, video.subarray(4, 8).toString()], ["objects.mp4", "ftyp"]);
});

await step("a box, a focus that stays, and a press that lasts", async () => {
  const stage = await page.locator("#video-stage").boundingBox(), before = (await rows(page)).length;
  await change(page, async () => {
    await page.mouse.move(stage.x + stage.width * 0.2, stage.y + stage.height * 0.3);
    await page.mouse.down();
    await page.mouse.move(stage.x + stage.width * 0.6, stage.y + stage.height * 0.8, { steps: 4 });
    await page.mouse.up();
  }, "^Object \\d+, a box on frame");
  assert.equal((await rows(page)).length, before + 1);
  await page.screenshot({ path: `${folder}/video-box.png` });
  // The list is painted every second.
  const cross = page.locator("#video-objects .remove").last();
  await cross.focus();
  const name = await focused(page);
  await page.waitForTimeout(2500);
  assert.equal(await focused(page), name, "the focus stays");
  await cross.hover();
  await page.mouse.down();
  await page.waitForTimeout(1600);
  await page.mouse.up();
  await status(page, "is removed");
  assert.equal((await rows(page)).length, before, "a slow press removes");
  assert.match(await focused(page), /^Remove object/, "the neighbour has the focus");
  await page.locator("#video-stage").focus();
  for (const key of ["b", "Shift+ArrowRight", "Shift+ArrowDown", "Shift+ArrowRight"]) await page.keyboard.press(key);
  await change(page, () => page.keyboard.press("b"), "^Object \\d+, a box on frame");
  await page.locator("#video-undo").click();
  await status(page, "is removed");
});

await step("a word, and a run that is stopped", async () => {
  await page.locator("#video-word").fill("dog");
  await page.locator("#video-search").click();
  await status(page, "found on frame");
  await page.locator("#video-direction").selectOption("forward");
  await scrub(page, 0);
  await page.locator("#video-follow").click();
  await page.locator("#video-cancel").click({ timeout: 2000 }).catch(() => {});
  await status(page, "^Stopped after|frames in");
  await page.waitForFunction(() => document.getElementById("video-running").hidden);
});

await step("a reload, and a session that has ended", async () => {
  await page.reload();
  await page.waitForFunction(() => !document.getElementById("video-session").hidden);
  const path = await session(page);
  await page.evaluate((path) => fetch(path, { method: "DELETE" }), path);
  await page.waitForFunction(() => /session has ended/.test(document.getElementById("problem").textContent));
  assert.ok(await page.locator("#video-list").isVisible());
  await page.context().close();
});

await step("an upload, with the keyboard alone", async () => {
  const keys = await open();
  await keys.locator("#tab-image").focus();
  await keys.keyboard.press("ArrowRight");
  assert.equal(await keys.evaluate(() => document.activeElement.id), "tab-video");
  await keys.setInputFiles("#video-file", upload);
  await status(keys, "^Type a word");
  await keys.locator("#video-stage").focus();
  await keys.keyboard.press("Shift+ArrowLeft");
  await status(keys, "^Cursor at");
  await change(keys, () => keys.keyboard.press("Enter"), "^Object 1, 1 click");
  await change(keys, () => keys.keyboard.press("Shift+Enter"), "^Object 1, 2 clicks");
  await keys.keyboard.press("n");
  await change(keys, () => keys.keyboard.press("Enter"), "^Object 2, 1 click");
  await keys.keyboard.press("Control+z");
  await status(keys, "Object 2 is removed");
  await keys.locator("#video-close").click();
  await status(keys, "is closed");
  assert.equal(await keys.evaluate(() => location.hash), "");
  await keys.context().close();
});

await step("what is no video, and a phone, dark", async () => {
  const phone = await open({ viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true, colorScheme: "dark" });
  await phone.locator("#tab-video").tap();
  await phone.setInputFiles("#video-file", { name: "notes.mp4", mimeType: "video/mp4", buffer: Buffer.from("no video at all") });
  await phone.waitForFunction(() => /expected a file in MP4/.test(document.getElementById("problem").textContent));
  await phone.locator("#video-open").tap();
  await status(phone, "^Type a word");
  await change(phone, () => phone.locator("#video-stage").tap(), "^Object 1, 1 click");
  const [wide, room] = await phone.evaluate(() => [document.scrollingElement.scrollWidth, innerWidth]);
  assert.ok(wide <= room, `${wide} pixels in ${room}`);
  await phone.screenshot({ path: `${folder}/video-phone.png`, fullPage: true });
  await phone.locator("#video-close").tap();
  await status(phone, "is closed");
  await phone.context().close();
});

await close();
console.log("videos work");
