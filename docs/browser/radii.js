// The radius of each look and count, as Python computed it.

export class Radii {
  // looks: [n, least count that certifies a radius]; file: for each look, the radii from that count to n
  constructor(looks, file) {
    this.looks = looks.map(([n]) => n);
    this.least = looks.map(([, least]) => least);
    const values = new Float64Array(file);
    let start = 0;
    this.parts = looks.map(([n, least]) => values.subarray(start, (start += n + 1 - least)));
    if (start !== values.length) throw new Error("radii.bin is not of these looks");
  }

  of(look, count) {
    return count < this.least[look] ? 0 : this.parts[look][count - this.least[look]];
  }
}

// Four digits after the point, from the exact decimal expansion: never above the radius.
export const roundedDown = (radius) => radius.toFixed(100).slice(0, -96);
