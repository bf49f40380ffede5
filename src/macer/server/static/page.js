// The page: an image, its certificate that grows, and an attack on it.

import { clear, setClasses, showCertificate, showCount, showDivided, showVotes, tell } from "./certificate.js";
import { Curve } from "./curve.js";
import { paint, pngOf } from "./drawing.js";
import { Source } from "./image.js";
import * as service from "./service.js";

const $ = (id) => document.getElementById(id);
const COPIES = 4;

let known = { models: [], limits: {} };
let image = null; // PNG of the model's size
let certificate = null; // the last answer
let running = null; // AbortController of the stream
let attacking = null;

const curve = new Curve($("curve"));
const source = new Source({
  taken: take,
  cleared: () => { image = null; reset(); },
  refused: (line) => { $("problem").textContent = line; },
});
const model = () => known.models.find((one) => one.name === $("model").value);
const still = matchMedia("(prefers-reduced-motion: reduce)");

function problem(error) {
  if (error.name === "AbortError") return;
  $("problem").textContent = error instanceof service.Refused ? error.message : "The service does not answer.";
}

function chooseModel() {
  const { sigma, shape, classes, examples } = model();
  source.fit(shape, examples);
  Object.assign($("attacked"), { width: shape[2], height: shape[1] });
  $("sigma").textContent = sigma;
  setClasses(classes);
  reset();
}

function reset() {
  running?.abort();
  attacking?.abort();
  certificate = null;
  clear(image ? "ready" : "no image yet");
  $("attack-verdict").textContent = "";
  $("length").disabled = true;
  $("distance").textContent = "not attacked";
  $("certify").disabled = !image;
  curve.show(model().sigma, 0.5, 0);
}

async function take() {
  image = await pngOf($("image"));
  reset();
  await certify();
}

async function certify() {
  running?.abort();
  const mine = (running = new AbortController());
  $("problem").textContent = "";
  $("certify").disabled = true;
  $("stop").disabled = false;
  const parameters = {
    model: model().name, alpha: $("alpha").value, copies: still.matches ? 0 : COPIES,
    deadline: Math.min(known.limits.seconds, 20),
  };
  try {
    for await (const [kind, answer] of service.stream(image, parameters, { key: $("key").value, signal: mine.signal })) {
      if (kind === "error") throw new service.Refused(answer.error.message);
      show(answer, kind === "end");
    }
  } catch (error) {
    problem(error);
  }
  if (running === mine) {
    $("certify").disabled = false;
    $("stop").disabled = true;
    if (certificate) tell($("radius"), certificate.radius.toFixed(4), true);
  }
}

function show(answer, last) {
  certificate = answer;
  showCertificate(answer.abstained ? "no label yet" : answer.class_name, answer.radius.toFixed(4), last);
  showCount(answer.samples, answer.seconds, answer.alpha);
  showVotes(answer.votes, answer.samples, answer.selected);
  if (last && answer.abstained) showDivided(answer.samples);
  if (answer.copies.length) {
    $("copies").replaceChildren(...answer.copies.map((copy) =>
      Object.assign(document.createElement("img"), { src: `data:image/png;base64,${copy}`, alt: "" })));
  }
  curve.show(answer.sigma, answer.p_a, answer.radius);
  $("length").disabled = answer.abstained;
  showLength();
}

// The slider is in units of the certified radius, which is at a quarter of it.
const lengthOf = () => Number($("length").value) * (certificate?.radius ?? 0);

function showLength() {
  $("length-value").textContent = lengthOf().toFixed(2);
  $("length").setAttribute("aria-valuetext", `${lengthOf().toFixed(2)}, ${$("length").value} times the certified radius`);
}

async function attack() {
  attacking?.abort();
  const mine = (attacking = new AbortController());
  const [length, certified] = [lengthOf(), certificate];
  if (running) running.abort(); // the certificate so far holds; its radius stays as it is
  const parameters = { model: certified.model, alpha: $("alpha").value, label: certified.label, length };
  $("attack-verdict").textContent = "attacking …";
  try {
    const found = await service.attack(image, parameters, { key: $("key").value, signal: mine.signal });
    const picture = new Image();
    picture.src = `data:image/png;base64,${found.image}`;
    await picture.decode();
    paint(picture, $("attacked"));
    judge(found, certified);
  } catch (error) {
    if (error.name !== "AbortError") $("attack-verdict").textContent = "";
    problem(error);
  }
}

function judge({ distance, answer }, certified) {
  $("distance").textContent = `moved by ${distance.toFixed(4)}`;
  const inside = distance <= certified.radius;
  const where = inside ? "Inside the certified ball" : "Outside the certified ball";
  const verdict = $("attack-verdict");
  const same = answer.label === certified.label;
  const said = answer.abstained
    ? `the label is not decided by ${answer.samples.toLocaleString("en")} samples.`
    : same ? `the label holds: ${answer.class_name}.` : `the label falls: ${answer.class_name}.`;
  verdict.textContent = `${where}: ${said}`;
  verdict.className = answer.abstained ? "" : same ? "holds" : "falls";
  verdict.dataset.inside = inside;
}

async function begin() {
  known = await service.models();
  $("model").replaceChildren(...known.models.map((one) =>
    new Option(`${one.name} (σ = ${one.sigma})`, one.name)));
  const middle = known.models.find((one) => one.sigma === 0.5);
  if (middle) $("model").value = middle.name;
  $("key-field").hidden = !known.key_needed;
  chooseModel();
  source.offer(Math.max(0, ...known.models.map((one) => one.examples)));
}

$("model").addEventListener("change", () => {
  const before = image && createImageBitmap($("image"));
  image = null;
  chooseModel();
  before?.then((picture) => source.show(picture));
});
$("settings").addEventListener("submit", (event) => event.preventDefault());
$("alpha").addEventListener("change", () => { reset(); if (image) certify(); });
$("certify").addEventListener("click", certify);
$("stop").addEventListener("click", () => running?.abort());
$("length").addEventListener("input", showLength);
$("length").addEventListener("change", attack);
$("formula-button").addEventListener("click", () => {
  const open = $("formula").hidden;
  $("formula").hidden = !open;
  $("formula-button").setAttribute("aria-expanded", open);
  $("formula-button").querySelector("span").textContent = open ? "Hide the formula" : "Show the formula";
});
begin().catch(problem);
