// The second part of a page: a certificate that grows.

const $ = (id) => document.getElementById(id);
const SPOKEN = 1500; // milliseconds between what a screen reader is told

// Live regions are changed at most every SPOKEN milliseconds for those who listen; the eye sees all.
export function tell(output, text, last) {
  const now = performance.now();
  output.setAttribute("aria-live", last || now - (output.told ?? -SPOKEN) >= SPOKEN ? "polite" : "off");
  if (output.getAttribute("aria-live") === "polite") output.told = now;
  output.textContent = text;
}

export function setClasses(classes) {
  $("votes").replaceChildren(...classes.map((name) => {
    const row = document.createElement("tr");
    const head = Object.assign(document.createElement("th"), { scope: "row", textContent: name });
    const bar = Object.assign(document.createElement("span"), { className: "bar" });
    const [middle, count] = [document.createElement("td"), document.createElement("td")];
    middle.append(bar);
    row.append(head, middle, count);
    return row;
  }));
}

export function clear(text) {
  $("label").textContent = text;
  $("radius").textContent = "0.0000";
  $("problem").textContent = "";
  $("count").textContent = "Every radius shown holds, at whatever moment you look.";
  $("copies").replaceChildren();
  for (const row of $("votes").rows) showRow(row, 0, 0, false);
}

export function showVotes(votes, samples, selected) {
  [...$("votes").rows].forEach((row, c) => showRow(row, votes[c], samples, c === selected));
}

function showRow(row, votes, samples, top) {
  row.className = top ? "top" : "";
  row.querySelector(".bar").style.width = `${samples ? (100 * votes) / samples : 0}%`;
  row.cells[2].textContent = votes.toLocaleString("en");
}

// A label, or why there is none; a radius of four digits that is rounded down.
export function showCertificate(label, radius, last) {
  if ($("label").textContent !== label) $("label").textContent = label;
  tell($("radius"), radius, last);
}

// At the end, where there is no certificate.
export function showDivided(samples) {
  $("label").textContent = "abstains";
  $("problem").textContent = `The votes of ${samples.toLocaleString("en")} copies are too divided for a certificate.`;
}

// After the certificate: where there is none, nothing holds.
export function showCount(samples, seconds, alpha) {
  const holds = Number($("radius").textContent) > 0 ? `; holds with probability ${1 - alpha}` : "";
  $("count").textContent = `${samples.toLocaleString("en")} samples in ${seconds.toFixed(1)} s${holds}`;
}
