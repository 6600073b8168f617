// Chromium, and what the checks of the page share: node CHECK.mjs URL IMAGE FOLDER, with PLAYWRIGHT=folder-with-node_modules.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import path from "node:path";

const { chromium } = createRequire(`${path.resolve(process.env.PLAYWRIGHT)}/package.json`)("playwright-core");
export const [url, image, folder] = process.argv.slice(2);

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"],
});
const problems = [];

// Opens the page, where `script` runs before its own.
export async function open(options = {}, script = () => {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, permissions: ["clipboard-read", "clipboard-write", "camera"], ...options });
  await context.addInitScript(script);
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  page.on("pageerror", (error) => problems.push(`error on the page: ${error.stack}`));
  page.on("console", (message) => { if (message.type() === "error" && !/status of (4|5)\d\d|net::ERR_FAILED/.test(message.text())) problems.push(`console: ${message.text()}`); });
  page.on("request", (request) => { if (!request.url().startsWith(url) && !/^(blob|data):/.test(request.url())) problems.push(`foreign request: ${request.url()}`); });
  await page.goto(url);
  await page.waitForFunction(() => document.getElementById("about").textContent !== "");
  return page;
}

export const text = (page, id) => page.locator(`#${id}`).textContent();
export const count = (page, id) => page.locator(`#${id} li`).count();

// Does something, and waits until the answer is shown: a status that matches `answer`.
export async function change(page, work, answer = "found in|nothing|Nothing|Type what") {
  await page.evaluate(() => { document.getElementById("status").textContent = ""; });
  await work();
  await page.waitForFunction((answer) => new RegExp(answer).test(document.getElementById("status").textContent), answer);
}

export async function step(name, work) {
  const start = Date.now();
  await work();
  console.log(`ok ${name} (${Date.now() - start} ms)`);
}

export async function names(page) {
  const nameless = await page.evaluate(() => [...document.querySelectorAll("button, input, select, canvas, img, [role=tabpanel]")].filter((element) => {
    const labels = element.labels?.length, id = element.getAttribute("aria-labelledby");
    const name = element.getAttribute("aria-label") || (id && document.getElementById(id)?.textContent) || (labels && element.labels[0].textContent) || element.textContent;
    return element.tagName === "IMG" ? !element.hasAttribute("alt") : !name?.trim();
  }).map((element) => element.outerHTML.slice(0, 120)));
  assert.deepEqual(nameless, [], "elements without a name");
}

export async function close() {
  await browser.close();
  assert.deepEqual(problems, []);
}
