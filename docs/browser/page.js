// CERTIFY in the browser alone: a digit, its noisy copies, their votes, and a radius that grows.

import { clear, setClasses, showCertificate, showCount, showDivided, showVotes } from "./certificate.js";
import { Source } from "./image.js";
import { top } from "./noise.js";
import { Radii, roundedDown } from "./radii.js";
import { Votes } from "./votes.js";

const $ = (id) => document.getElementById(id);
const VOTING = "voting …";
const UNDECIDED = "no label yet";
const FLICKER = 150; // milliseconds that copies are shown at least

const settings = await (await fetch("settings.json")).json();
const votes = new Votes();
const still = matchMedia("(prefers-reduced-motion: reduce)");

let radii = null; // once they are needed
let pixels = null; // of the image
let turn = 0; // counts what was begun; an earlier one ends when a later one begins

const source = new Source({
  taken: () => { pixels = greyOf($("image")); certify(); },
  cleared: () => { pixels = null; stop(); clear("no image yet"); $("certify").disabled = true; },
  refused: problem,
});

function problem(line) {
  $("problem").textContent = line;
}

function greyOf(canvas) {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return Uint8Array.from({ length: data.length / 4 }, (_, i) => data[4 * i]);
}

function stop() {
  turn += 1;
  $("certify").disabled = !pixels;
  $("stop").disabled = true;
  if ($("label").textContent === VOTING) $("label").textContent = UNDECIDED;
}

async function certify() {
  const mine = (turn += 1);
  clear(VOTING);
  $("radius").removeAttribute("data-certificate");
  [$("certify").disabled, $("stop").disabled] = [true, false];
  try {
    for await (const certificate of certificates(pixels, () => turn === mine)) {
      if (turn !== mine) return;
      show(certificate);
    }
    if (turn === mine) showEnd();
  } catch (error) {
    problem(`The network cannot be run in this browser: ${error.message}`);
  }
  if (turn === mine) stop();
}

// After each look, the certificate of the look with the largest radius so far. Its class is selected
// on other samples.                            [src/macer/certification/anytime.py, Cohen+19, CERTIFY]
async function* certificates(image, goesOn) {
  const begun = performance.now();
  const seconds = () => (performance.now() - begun) / 1000;
  radii ??= new Radii(settings.looks, await (await fetch("radii.bin")).arrayBuffer());
  const selection = await drawn(image, settings.n0, goesOn);
  if (!selection) return;
  const selected = top(selection);
  const estimation = selection.map(() => 0);
  let best = { radius: 0 };
  let samples = 0;
  for (const [look, n] of radii.looks.entries()) {
    const more = await drawn(image, n - samples, goesOn, (part) => {
      part.forEach((count, c) => { estimation[c] += count; });
      samples += settings.rows;
      showVotes(estimation, samples, selected);
      showCount(samples, seconds(), settings.alpha);
    });
    if (!more) return;
    const radius = radii.of(look, estimation[selected]);
    if (radius >= best.radius) best = { radius, drawn: n, selection, selected, estimation: [...estimation] };
    yield { ...best, samples };
  }
}

// The votes of `count` noisy copies; null where one need not go on.
async function drawn(image, count, goesOn, each = () => {}) {
  const total = settings.classes.map(() => 0);
  for (let i = 0; i < count; i += settings.rows) {
    const part = await votes.ask({ pixels: image });
    if (!goesOn()) return null;
    part.votes.forEach((votes, c) => { total[c] += votes; });
    each(part.votes);
    showCopies(part.copies);
  }
  return total;
}

function show(certificate) {
  const { radius, selected } = certificate;
  showCertificate(radius > 0 ? settings.classes[selected] : UNDECIDED, roundedDown(radius), false);
  $("radius").dataset.certificate = JSON.stringify(certificate);
}

function showEnd() {
  const label = $("label").textContent;
  showCertificate(label, $("radius").textContent, true);
  if (label === UNDECIDED) showDivided(settings.n);
}

let shown = -FLICKER;

function showCopies(copies) {
  if (still.matches || performance.now() - shown < FLICKER) return;
  shown = performance.now();
  const [, height, width] = settings.shape;
  $("copies").replaceChildren(...Array.from({ length: copies.length / (width * height) }, (_, i) => {
    const canvas = Object.assign(document.createElement("canvas"), { width, height });
    const image = new ImageData(width, height);
    copies.subarray(i * width * height, (i + 1) * width * height).forEach((value, p) => {
      image.data.set([value, value, value, 255], 4 * p);
    });
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
  }));
}

source.fit(settings.shape, true);
source.offer(settings.examples);
setClasses(settings.classes);
clear("no image yet");
for (const kind of ["pointerenter", "focusin", "dragenter"]) {
  $("image").closest("section").addEventListener(kind, () => votes.load(), { once: true }); // while one draws
}
$("certify").addEventListener("click", certify);
$("stop").addEventListener("click", stop);
$("unserved").remove();

// In a frame of another page: as high as this page is, and in the colours of that one.
const frame = window.frameElement;
if (frame) {
  const root = document.documentElement;
  const dress = () => { root.style.colorScheme = getComputedStyle(frame).colorScheme; };
  new ResizeObserver(() => { frame.style.height = `${root.offsetHeight}px`; }).observe(root);
  new MutationObserver(dress).observe(frame.ownerDocument.body, { attributes: true });
  dress();
}
