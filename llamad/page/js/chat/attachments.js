// The files of a message that is being written: images and sound, if the model takes them. They are added with a
// button, by dropping or by pasting.

import { announce } from "../base/announce.js";
import { iconButton } from "../base/buttons.js";
import { fill, h } from "../base/dom.js";
import { Signal } from "../base/signal.js";

const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp"];
const SOUNDS = ["audio/wav", "audio/x-wav", "audio/wave", "audio/mpeg", "audio/mp3", "audio/flac", "audio/x-flac"];

/** Return the element that shows a file: {name, data}. */
export function mediaElement({ name, data }) {
  if (data.startsWith("data:image/")) return h("img.thumb", { src: data, alt: name || "Image" });
  return h("audio", { src: data, controls: true, "aria-label": name || "Sound" });
}

/** Return the types of files that a model takes, from /props. */
export function acceptedTypes(props) {
  const { vision, audio } = props?.modalities ?? {};
  return [...(vision ? IMAGES : []), ...(audio ? SOUNDS : [])];
}

export class Attachments {
  constructor() {
    this.files = []; // {name, data}
    this.types = [];
    this.problem = new Signal("");
    this.element = h("div.attachments", { hidden: true });
  }

  /** Add files of a known kind. */
  async add(files) {
    this.problem.set("");
    for (const file of files) {
      if (!this.types.includes(file.type)) {
        this.problem.set(this.refusal(file));
        announce(this.problem.value);
        continue;
      }
      this.files.push({ name: file.name, data: await dataOf(file) });
      announce(`${file.name} attached`);
    }
    this.draw();
  }

  refusal(file) {
    if (!this.types.length) return "This model reads text only.";
    const kinds = [
      this.types.includes("image/png") && "PNG, JPEG, GIF, WebP and BMP images",
      this.types.includes("audio/wav") && "WAV, MP3 and FLAC sound",
    ];
    return `${file.name}: the model takes ${kinds.filter(Boolean).join(", and ")}.`;
  }

  /** Remove the files and return them. */
  take() {
    const files = this.files;
    this.files = [];
    this.draw();
    return files;
  }

  draw() {
    this.element.hidden = this.files.length === 0;
    fill(
      this.element,
      this.files.map((file, at) => {
        const drop = () => {
          this.files.splice(at, 1);
          this.draw();
        };
        return h("div.attachment", {}, mediaElement(file), iconButton("close", `Remove ${file.name}`, drop));
      }),
    );
  }
}

function dataOf(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
