// Owns the display of a text that is still being written. Blocks that nothing can change any more are left alone; only
// the last one is made again, at most once a frame, and less often when that takes long.

import { parseBlocks } from "./blocks.js";
import { renderBlock } from "./render.js";

const SHARE = 4; // of the time between two updates, at most one part in so many is spent on them

export class LiveMarkdown {
  /** `onSettled` gets the element of each block that is complete. */
  constructor(container, onSettled = () => {}) {
    this.container = container;
    this.onSettled = onSettled;
    this.text = "";
    this.start = 0; // where the first block that is not settled begins
    this.open = []; // elements that may yet change
    this.waiting = 0;
    this.notBefore = 0;
  }

  /** Show this text, which begins with the one shown before, soon. */
  update(text) {
    this.text = text;
    if (!this.waiting) this.waiting = requestAnimationFrame((now) => this.frame(now));
  }

  frame(now) {
    if (now < this.notBefore) {
      this.waiting = requestAnimationFrame((later) => this.frame(later));
      return;
    }
    this.waiting = 0;
    const began = performance.now();
    this.draw(false);
    const took = performance.now() - began;
    this.notBefore = performance.now() + took * (SHARE - 1);
  }

  /** The text is complete. */
  finish(text) {
    if (this.waiting) cancelAnimationFrame(this.waiting);
    this.waiting = 0;
    this.text = text;
    this.draw(true);
  }

  draw(isComplete) {
    const tail = this.text.replace(/\r\n?/g, "\n").slice(this.start);
    const blocks = parseBlocks(tail);
    if (this.extendCode(blocks, isComplete)) return;
    const n = isComplete ? blocks.length : countSettled(tail, blocks);
    const elements = blocks.map(renderBlock);
    for (const element of this.open) element.remove();
    for (const element of elements) this.container.append(element);
    this.open = elements.slice(n);
    this.code = blocks.length - n === 1 && blocks[n].type === "code" ? blocks[n] : null;
    elements.slice(0, n).forEach(this.onSettled);
    if (n > 0) this.start += n < blocks.length ? offsetOfLine(tail, blocks[n].line) : tail.length;
  }

  /** Long code grows by its new text alone: true if that was all there is to do. */
  extendCode(blocks, isComplete) {
    const [block] = blocks;
    if (isComplete || !this.code || blocks.length !== 1 || block.type !== "code" || block.isClosed) return false;
    if (block.language !== this.code.language || !block.text.startsWith(this.code.text)) return false;
    this.open[0].querySelector("pre code").append(block.text.slice(this.code.text.length));
    this.code = block;
    return true;
  }
}

/** All blocks but the last are settled, unless that has only a part of its first line, which may become anything. */
function countSettled(tail, blocks) {
  if (blocks.length < 2) return 0;
  const begins = offsetOfLine(tail, blocks.at(-1).line);
  return tail.indexOf("\n", begins) >= 0 ? blocks.length - 1 : Math.max(0, blocks.length - 2);
}

function offsetOfLine(text, line) {
  let at = 0;
  for (let n = 0; n < line; n += 1) at = text.indexOf("\n", at) + 1;
  return at;
}
