// Starts Chromium, with a camera that shows what it is given.

import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const EXECUTABLE = process.env.CHROMIUM ?? "/usr/bin/chromium";

/** `camera`: an .mjpeg file. `origin`: requests to any other place are kept in `strangers`, and so are errors. */
export async function start({ camera, origin, ...options } = {}) {
  const folder = await mkdtemp(join(tmpdir(), "ocelli-chromium-"));
  const fake = camera ? [`--use-file-for-fake-video-capture=${camera}`] : [];
  const context = await chromium.launchPersistentContext(folder, {
    executablePath: EXECUTABLE,
    headless: true,
    permissions: ["camera"],
    viewport: { width: 1360, height: 900 },
    ...options,
    args: [
      "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync", "--use-fake-device-for-media-stream",
      "--use-fake-ui-for-media-stream", ...fake,
    ],
  });
  const [page] = context.pages();
  const [strangers, errors] = [[], []];
  page.on("request", (request) => {
    if (!/^(blob|data):/.test(request.url()) && !request.url().startsWith(`${origin}/`)) strangers.push(request.url());
  });
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  return { context, page, strangers, errors };
}
