// Compiled with TypeScript, not run: the types of the package as a program uses them.

import { Detector, Tokenizer, Tracker, fetchModel, vocabulary } from "ocelli";
import type { Box, Detection, Track } from "ocelli";

const files = await fetchModel(undefined, (loaded: number, total: number) => console.log(loaded / total));
const detector = await Detector.open({ files, masks: true, confidence: 0.4 });
detector.setPrompts(["dog", { label: "mine", exemplars: [{ box: [0, 0, 9, 9], wanted: true }] }]);
const found: Detection[] = detector.detect(new ImageData(64, 64)).detections;
const boxes: Box[] = found.map((one) => one.box);
const tracks: Track[] = (await Tracker.create()).update(found);
const tokens: number[] = (await Tokenizer.create(new Uint8Array(), 32)).encode("dog").ids;
const names: string[] = await vocabulary();
// @ts-expect-error a box has four numbers
const wrong: Box = [0, 0, 9];
console.log(boxes, tracks, tokens, names, wrong);
