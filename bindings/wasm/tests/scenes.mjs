// The detections of the page are those of the native program, on every scene of tests/golden/scenes.
//   node scenes.mjs PAGE_FOLDER OCELLI_PROGRAM

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { serve } from "./server.mjs";
import { start } from "./browser.mjs";

const [folder, program] = process.argv.slice(2);
const SCENES = `${process.cwd()}/tests/golden/scenes/`;
const [SCORE, PIXELS] = [0.002, 0.5];

function native({ file, classes }) {
  const json = join(mkdtempSync(join(tmpdir(), "ocelli-native-")), "found.json");
  const given = ["detect", "--model", join(folder, "package/model"), "--image", join(SCENES, file), "--classes", ...classes];
  execFileSync(program, [...given, "--engine", "embedded", "--masks", "--confidence", "0.3", "--json", json, "-q"]);
  return JSON.parse(readFileSync(json)).images[0].detections;
}

const server = await serve([["/golden/", SCENES], ["/", folder]]);
const { context, page, strangers, errors } = await start({ origin: server.origin });
await page.goto(`${server.origin}/`);
await page.evaluate(async () => {
  const { Detector } = await import("./package/index.js");
  window.detector = await Detector.open({ confidence: 0.3 });
});

const { images } = JSON.parse(readFileSync(join(SCENES, "detections.json")));
const worst = { score: 0, pixels: 0, masks: 0 };
const times = [];
let count = 0;
for (const image of images) {
  const inPage = await page.evaluate(async ({ file, classes }) => {
    const bitmap = await createImageBitmap(await (await fetch(`golden/${file}`)).blob());
    const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
    context.drawImage(bitmap, 0, 0);
    window.detector.setPrompts(classes);
    return window.detector.detect(context.getImageData(0, 0, bitmap.width, bitmap.height));
  }, image);
  const expected = native(image);
  const found = inPage.detections;
  times.push(inPage.times.total);
  assert.equal(found.length, expected.length, `${image.file}: ${found.length} of ${expected.length} detections`);
  expected.forEach((one, index) => {
    // Equal scores may change places.
    const same = found.find((other) => other.label === one.label && Math.abs(other.score - one.score) <= SCORE &&
      other.box.every((edge, side) => Math.abs(edge - one.box[side]) <= PIXELS));
    assert.ok(same, `${image.file}: no detection like ${one.label} ${one.score} ${one.box}; ${JSON.stringify(found[index])}`);
    assert.ok(same.polygons.length && same.mask.counts, `${image.file}: no mask`);
    worst.masks += Number(same.mask.counts !== one.mask.counts);
    worst.score = Math.max(worst.score, Math.abs(same.score - one.score));
    worst.pixels = Math.max(worst.pixels, ...same.box.map((edge, side) => Math.abs(edge - one.box[side])));
    count += 1;
  });
}
assert.ok(count > 150, `only ${count} detections`);
assert.deepEqual(strangers, []);
assert.deepEqual(errors, []);
await context.close();
server.close();
times.sort((a, b) => a - b);
console.log(`${count} detections in ${images.length} scenes: largest difference ${worst.score.toExponential(1)} of the score, ` +
  `${worst.pixels.toExponential(1)} px; ${worst.masks} masks differ in some pixel; 12 classes with masks in ${times[times.length >> 1].toFixed(0)} ms (median)`);
