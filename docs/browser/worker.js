// Draws noisy copies and lets the network vote on them, beside the page, so that the page stays quick.

import { Noise, countVotes, fillRandom } from "./noise.js";
import * as ort from "./ort.wasm.bundle.min.mjs";

ort.env.wasm.numThreads = 1; // more would need cross-origin isolation

const SHOWN = 4; // copies that the page shows

const bytes = async (name) => {
  const response = await fetch(name);
  if (!response.ok) throw new Error(`${name}: ${response.status}`);
  return response.arrayBuffer();
};

async function load() {
  const names = ["thresholds", "guide", "floats"];
  const [settings, model, ...tables] = await Promise.all([
    fetch("settings.json").then((response) => response.json()),
    bytes("model.onnx"),
    ...names.map((name) => bytes(`${name}.bin`)),
  ]);
  const session = await ort.InferenceSession.create(model, { executionProviders: ["wasm"] });
  const noise = new Noise(Object.fromEntries(names.map((name, i) => [name, tables[i]])), settings.lowest);
  const values = settings.rows * settings.shape.reduce((a, b) => a * b);
  return { settings, session, noise, batch: new Float32Array(values), random: new Uint32Array(2 * values) };
}

async function logitsOf({ session, settings }, batch) {
  const x = new ort.Tensor("float32", batch, [settings.rows, ...settings.shape]);
  const outputs = await session.run({ x });
  return outputs[session.outputNames[0]].data;
}

// The votes of settings.rows noisy copies, and the first copies, cut off at black and white.
async function draw(loaded, pixels) {
  const { settings, noise, batch, random } = loaded;
  fillRandom(random);
  const decided = noise.copies(pixels, random, batch);
  const votes = countVotes(await logitsOf(loaded, batch), decided, settings.classes.length);
  const copies = Uint8ClampedArray.from(batch.subarray(0, SHOWN * pixels.length), (value) => 255 * value);
  return { votes, copies };
}

const loading = load();
loading.catch(() => {}); // who asks is told

// A message is { pixels }: certify these; or { batch }: the logits of these, for tests.
onmessage = async ({ data }) => {
  try {
    const loaded = await loading;
    postMessage(data.batch ? { logits: await logitsOf(loaded, data.batch) } : await draw(loaded, data.pixels));
  } catch (error) {
    postMessage({ error: error.message });
  }
};
