// The drawing field, and how a drawing or a photo becomes an image of the model's size.

const STROKE = 22;

export class Pad {
  // Calls `changed` when a stroke has ended.
  constructor(canvas, changed) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { willReadFrequently: true });
    this.changed = changed;
    this.pen = { x: 140, y: 60, down: false };
    this.clear();
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", () => this.lift());
    canvas.addEventListener("pointercancel", () => this.lift());
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  clear() {
    this.context.fillStyle = "#000";
    this.context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    this.canvas.parentElement.classList.add("empty");
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    const scale = this.canvas.width / box.width;
    return { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale };
  }

  press(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.drawing = true;
    this.last = this.place(event);
    this.line(this.last, this.last);
  }

  move(event) {
    if (!this.drawing) return;
    const now = this.place(event);
    this.line(this.last, now);
    this.last = now;
  }

  lift() {
    if (!this.drawing) return;
    this.drawing = false;
    this.changed();
  }

  key(event) {
    const steps = { ArrowLeft: [-10, 0], ArrowRight: [10, 0], ArrowUp: [0, -10], ArrowDown: [0, 10] };
    const step = steps[event.key];
    if (event.key === " ") {
      this.pen.down = !this.pen.down;
      if (!this.pen.down) this.changed();
    } else if (step) {
      const within = (value) => Math.min(Math.max(value, 15), this.canvas.width - 15);
      const next = { x: within(this.pen.x + step[0]), y: within(this.pen.y + step[1]) };
      if (this.pen.down) this.line(this.pen, next);
      Object.assign(this.pen, next);
    } else {
      return;
    }
    event.preventDefault();
  }

  line(from, to) {
    const context = this.context;
    context.strokeStyle = "#fff";
    context.lineWidth = STROKE;
    context.lineCap = context.lineJoin = "round";
    context.beginPath();
    context.moveTo(from.x, from.y);
    context.lineTo(to.x, to.y + 0.01);
    context.stroke();
    this.canvas.parentElement.classList.remove("empty");
  }

  // The drawing as MNIST has its digits: 20 pixels at most, with the centre of mass in the middle.
  // False if nothing is drawn.
  into(target) {
    const { width, height } = this.canvas;
    const pixels = this.context.getImageData(0, 0, width, height).data;
    let [left, right, top, bottom, mass, x0, y0] = [width, 0, height, 0, 0, 0, 0];
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        const value = pixels[4 * (y * width + x)];
        if (value < 16) continue;
        left = Math.min(left, x); right = Math.max(right, x + 1);
        top = Math.min(top, y); bottom = Math.max(bottom, y + 1);
        mass += value; x0 += value * (x + 0.5); y0 += value * (y + 0.5);
      }
    }
    if (!mass) return false;
    const scale = 20 / Math.max(right - left, bottom - top, 60);
    const context = cleared(target);
    const [x, y] = [14 - (x0 / mass) * scale, 14 - (y0 / mass) * scale];
    context.drawImage(this.canvas, x, y, width * scale, height * scale);
    return true;
  }
}

function cleared(canvas) {
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#000";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingQuality = "high";
  return context;
}

// The middle square of a picture, or all of it where it has the canvas's own size.
export function paint(picture, target) {
  const side = Math.min(picture.width, picture.height);
  const [x, y] = [(picture.width - side) / 2, (picture.height - side) / 2];
  cleared(target).drawImage(picture, x, y, side, side, 0, 0, target.width, target.height);
}

// Models of one channel see grey.
export function makeGrey(canvas) {
  const context = canvas.getContext("2d");
  const image = context.getImageData(0, 0, canvas.width, canvas.height);
  for (let i = 0; i < image.data.length; i += 4) {
    const [r, g, b] = image.data.slice(i, i + 3);
    image.data.fill(Math.round(0.299 * r + 0.587 * g + 0.114 * b), i, i + 3);
  }
  context.putImageData(image, 0, 0);
}

export const pngOf = (canvas) => new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
