// The curve R = σ Φ⁻¹(p), and the point where the certificate is.

const SVG = "http://www.w3.org/2000/svg";
const [LEFT, RIGHT, TOP, BOTTOM] = [36, 310, 12, 150];
const MOST = 4; // R/σ at the top

const x = (p) => LEFT + ((p - 0.5) / 0.5) * (RIGHT - LEFT);
const y = (ratio) => BOTTOM - (Math.min(ratio, MOST) / MOST) * (BOTTOM - TOP);

function element(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
}

// Φ(r) for r = 0 … MOST, by Simpson's rule: the curve needs no inverse, r is its parameter.
function points() {
  const density = (t) => Math.exp((-t * t) / 2) / Math.sqrt(2 * Math.PI);
  const step = 0.02;
  let p = 0.5;
  const found = [[p, 0]];
  for (let r = 0; r < MOST - step / 2; r += step) {
    p += (step / 6) * (density(r) + 4 * density(r + step / 2) + density(r + step));
    found.push([p, r + step]);
  }
  return found;
}

export class Curve {
  constructor(svg) {
    const line = points().map(([p, r]) => `${x(p).toFixed(1)},${y(r).toFixed(1)}`).join(" ");
    this.dot = element("circle", { class: "dot", r: 5, cx: x(0.5), cy: y(0) });
    this.marks = [0, 1, 2, 3, 4].map((r) => element("text", { x: 4, y: y(r) + 4 }));
    svg.append(
      element("path", { class: "axis", d: `M${LEFT},${TOP}V${BOTTOM}H${RIGHT}`, fill: "none" }),
      element("polyline", { class: "line", points: line }),
      element("text", { x: LEFT, y: BOTTOM + 14 }, "p = 0.5"),
      element("text", { x: RIGHT - 10, y: BOTTOM + 14 }, "1"),
      element("text", { x: LEFT + 6, y: TOP + 4 }, "radius"),
      ...this.marks, this.dot,
    );
  }

  show(sigma, p, radius) {
    this.marks.forEach((mark, r) => { mark.textContent = (r * sigma).toFixed(2); });
    const inside = radius > 0;
    this.dot.setAttribute("cx", x(inside ? p : 0.5));
    this.dot.setAttribute("cy", y(inside ? radius / sigma : 0));
  }
}
