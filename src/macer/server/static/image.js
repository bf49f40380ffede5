// The first part of a page: an image that is drawn, picked or read from a file, in the canvas #image.

import { Pad, makeGrey, paint } from "./drawing.js";

const $ = (id) => document.getElementById(id);

export class Source {
  // Calls `taken` when there is a new image, `cleared` when there is none any more, and `refused`
  // with one line where a file is no image.
  constructor({ taken, cleared, refused }) {
    Object.assign(this, { taken, refused, channels: 1 });
    this.pad = new Pad($("pad"), () => { if (this.pad.into($("image"))) this.take(); });
    $("clear").addEventListener("click", () => { this.pad.clear(); cleared(); });
    $("file").addEventListener("change", (event) => this.photo(event.target.files[0]));
    for (const kind of ["dragover", "dragleave", "drop"]) {
      document.addEventListener(kind, (event) => {
        event.preventDefault();
        $("drop").classList.toggle("over", kind === "dragover");
        if (kind === "drop") this.photo(event.dataTransfer.files[0]);
      });
    }
  }

  // Take images of a model's shape. Only digits are drawn.
  fit([channels, height, width], digits) {
    this.channels = channels;
    Object.assign($("image"), { width, height });
    $("image-size").textContent = `what the model gets: ${width}×${height}`;
    $("drawing").hidden = $("examples").hidden = $("clear").hidden = !digits;
  }

  take() {
    if (this.channels === 1) makeGrey($("image"));
    this.taken();
  }

  show(picture) {
    paint(picture, $("image"));
    this.take();
  }

  // A picture in place of what is drawn.
  instead(picture) {
    this.pad.clear();
    this.show(picture);
  }

  async photo(file) {
    if (!file) return;
    try {
      this.instead(await createImageBitmap(file));
    } catch {
      this.refused("The file must be a PNG or JPEG image.");
    }
  }

  // Buttons with the images examples/0.png …
  offer(count) {
    for (let i = 0; i < count; i++) {
      const picture = Object.assign(new Image(), { src: `examples/${i}.png`, alt: `Test image ${i}` });
      const button = Object.assign(document.createElement("button"), { type: "button" });
      button.append(picture);
      button.addEventListener("click", async () => {
        await picture.decode();
        this.instead(picture);
      });
      $("examples").append(button);
    }
  }
}
