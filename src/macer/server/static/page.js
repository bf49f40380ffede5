// The page: an image, its certificate that grows, and an attack on it.

import { Curve } from "./curve.js";
import { Pad, makeGrey, paint, pngOf } from "./drawing.js";
import * as service from "./service.js";

const $ = (id) => document.getElementById(id);
const COPIES = 4;
const SPOKEN = 1500; // milliseconds between what a screen reader is told

let known = { models: [], limits: {} };
let image = null; // PNG of the model's size
let certificate = null; // the last answer
let running = null; // AbortController of the stream
let attacking = null;

const curve = new Curve($("curve"));
const pad = new Pad($("pad"), () => drawn());
const model = () => known.models.find((one) => one.name === $("model").value);
const still = matchMedia("(prefers-reduced-motion: reduce)");

function problem(error) {
  if (error.name === "AbortError") return;
  $("problem").textContent = error instanceof service.Refused ? error.message : "The service does not answer.";
}

// Live regions are changed at most every SPOKEN milliseconds for those who listen; the eye sees all.
function tell(output, text, last) {
  const now = performance.now();
  output.setAttribute("aria-live", last || now - (output.told ?? -SPOKEN) >= SPOKEN ? "polite" : "off");
  if (output.getAttribute("aria-live") === "polite") output.told = now;
  output.textContent = text;
}

function chooseModel() {
  const { sigma, shape, classes, examples } = model();
  const [, height, width] = shape;
  for (const canvas of [$("image"), $("attacked")]) Object.assign(canvas, { width, height });
  $("image-size").textContent = `what the model gets: ${width}×${height}`;
  $("sigma").textContent = sigma;
  $("drawing").hidden = $("examples").hidden = $("clear").hidden = !examples;
  $("votes").replaceChildren(...classes.map((name) => {
    const row = document.createElement("tr");
    const head = Object.assign(document.createElement("th"), { scope: "row", textContent: name });
    const bar = Object.assign(document.createElement("span"), { className: "bar" });
    const [middle, count] = [document.createElement("td"), document.createElement("td")];
    middle.append(bar);
    row.append(head, middle, count);
    return row;
  }));
  reset();
}

function reset() {
  running?.abort();
  attacking?.abort();
  certificate = null;
  $("label").textContent = image ? "ready" : "no image yet";
  $("radius").textContent = "0.0000";
  $("problem").textContent = $("attack-verdict").textContent = "";
  $("count").textContent = "Every radius shown holds, at whatever moment you look.";
  $("copies").replaceChildren();
  $("length").disabled = true;
  $("distance").textContent = "not attacked";
  $("certify").disabled = !image;
  for (const row of $("votes").rows) showVotes(row, 0, 0, false);
  curve.show(model().sigma, 0.5, 0);
}

function showVotes(row, votes, samples, top) {
  row.className = top ? "top" : "";
  row.querySelector(".bar").style.width = `${samples ? (100 * votes) / samples : 0}%`;
  row.cells[2].textContent = votes.toLocaleString("en");
}

async function take() {
  if (model().shape[0] === 1) makeGrey($("image"));
  image = await pngOf($("image"));
  reset();
  await certify();
}

async function drawn() {
  if (pad.into($("image"))) await take();
}

async function photo(file) {
  try {
    paint(await createImageBitmap(file), $("image"));
  } catch {
    $("problem").textContent = "The file must be a PNG or JPEG image.";
    return;
  }
  await take();
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
  const text = answer.abstained ? "no label yet" : answer.class_name;
  if ($("label").textContent !== text) $("label").textContent = text;
  tell($("radius"), answer.radius.toFixed(4), last);
  $("count").textContent =
    `${answer.samples.toLocaleString("en")} samples in ${answer.seconds.toFixed(1)} s; holds with probability ${1 - answer.alpha}`;
  [...$("votes").rows].forEach((row, c) => showVotes(row, answer.votes[c], answer.samples, c === answer.selected));
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

async function showExamples() {
  const most = Math.max(0, ...known.models.map((one) => one.examples));
  for (let i = 0; i < most; i++) {
    const picture = Object.assign(new Image(), { src: `examples/${i}.png`, alt: `Test image ${i}` });
    const button = Object.assign(document.createElement("button"), { type: "button" });
    button.append(picture);
    button.addEventListener("click", async () => {
      await picture.decode();
      paint(picture, $("image"));
      await take();
    });
    $("examples").append(button);
  }
}

async function begin() {
  known = await service.models();
  $("model").replaceChildren(...known.models.map((one) =>
    new Option(`${one.name} (σ = ${one.sigma})`, one.name)));
  const middle = known.models.find((one) => one.sigma === 0.5);
  if (middle) $("model").value = middle.name;
  $("key-field").hidden = !known.key_needed;
  chooseModel();
  await showExamples();
}

$("model").addEventListener("change", () => {
  const before = image && createImageBitmap($("image"));
  image = null;
  chooseModel();
  before?.then(async (picture) => { paint(picture, $("image")); await take(); });
});
$("settings").addEventListener("submit", (event) => event.preventDefault());
$("alpha").addEventListener("change", () => { reset(); if (image) certify(); });
$("certify").addEventListener("click", certify);
$("stop").addEventListener("click", () => running?.abort());
$("clear").addEventListener("click", () => { pad.clear(); image = null; reset(); });
$("length").addEventListener("input", showLength);
$("length").addEventListener("change", attack);
$("file").addEventListener("change", (event) => { if (event.target.files[0]) photo(event.target.files[0]); });
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    $("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files[0]) photo(event.dataTransfer.files[0]);
  });
}
$("formula-button").addEventListener("click", () => {
  const open = $("formula").hidden;
  $("formula").hidden = !open;
  $("formula-button").setAttribute("aria-expanded", open);
  $("formula-button").querySelector("span").textContent = open ? "Hide the formula" : "Show the formula";
});
begin().catch(problem);
