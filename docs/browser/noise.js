// The exact noise of macer, src/macer/smoothing/exact_noise.py, from random words and Python's tables.

export class Noise {
  // thresholds: T as pairs of its upper 32 and lower 30 bits, ascending
  // guide: number of thresholds below a draw, by its first 16 bits; −1: varies
  // floats: what the network sees, by pixel + number of thresholds below the draw
  constructor({ thresholds, guide, floats }, lowest) {
    this.thresholds = new Uint32Array(thresholds);
    this.guide = new Int16Array(guide);
    this.floats = new Float32Array(floats);
    this.lowest = lowest; // D − lowest is the number of thresholds below a draw
  }

  // The number of thresholds below U, the upper 62 bits of two words; −1 where U is a threshold.
  rank(high, low) {
    const known = this.guide[high >>> 16];
    if (known >= 0) return known;
    const rest = low >>> 2;
    const table = this.thresholds;
    let [from, to] = [0, table.length / 2];
    while (from < to) {
      const middle = (from + to) >>> 1;
      const [upper, lower] = [table[2 * middle], table[2 * middle + 1]];
      if (upper < high || (upper === high && lower < rest)) from = middle + 1;
      else if (upper === high && lower === rest) return -1;
      else to = middle;
    }
    return from;
  }

  // Write noisy copies of pixels into `batch`, two words of `random` for each value. Returns which
  // copies are decided: in those no draw was equal to a threshold.
  copies(pixels, random, batch) {
    const size = pixels.length;
    const decided = new Array(batch.length / size).fill(true);
    for (let i = 0; i < batch.length; i++) {
      const rank = this.rank(random[2 * i], random[2 * i + 1]);
      if (rank < 0) decided[Math.floor(i / size)] = false;
      batch[i] = this.floats[pixels[i % size] + Math.max(rank, 0)];
    }
    return decided;
  }
}

// The votes of rows of logits. A row with a logit that is not finite, or with undecided noise, votes
// for nobody; of equal logits the first has the vote.
export function countVotes(logits, decided, classes) {
  const votes = new Array(classes).fill(0);
  decided.forEach((counts, row) => {
    const own = Array.from(logits.subarray(row * classes, (row + 1) * classes));
    if (counts && own.every(Number.isFinite)) votes[top(own)] += 1;
  });
  return votes;
}

export const top = (values) => values.indexOf(Math.max(...values));

const MOST_BYTES = 65536; // that one call gives

export function fillRandom(words) {
  const step = MOST_BYTES / words.BYTES_PER_ELEMENT;
  for (let i = 0; i < words.length; i += step) crypto.getRandomValues(words.subarray(i, i + step));
}
