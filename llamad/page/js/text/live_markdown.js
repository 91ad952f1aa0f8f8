// Displays a text that is still being written. Blocks that can no longer change are left alone; only the last one is
// made again, at most once a frame, and less often if that takes long.

import { parseBlocks } from "./blocks.js";
import { renderBlock } from "./render.js";

const SHARE = 4; // updates take at most 1/SHARE of the time

export class LiveMarkdown {
  /** `onSettled` is called with the element of each complete block. */
  constructor(container, onSettled = () => {}) {
    this.container = container;
    this.onSettled = onSettled;
    this.text = "";
    this.start = 0; // where the first block begins that may still change
    this.open = []; // elements that may still change
    this.waiting = 0;
    this.notBefore = 0;
  }

  /** Show this text soon; it begins with the text that was shown before. */
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

  /** Show the last state of a complete text. */
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

  /** Append new text to a long code block; return whether nothing else is to do. */
  extendCode(blocks, isComplete) {
    const [block] = blocks;
    if (isComplete || !this.code || blocks.length !== 1 || block.type !== "code" || block.isClosed) return false;
    if (block.language !== this.code.language || !block.text.startsWith(this.code.text)) return false;
    this.open[0].querySelector("pre code").append(block.text.slice(this.code.text.length));
    this.code = block;
    return true;
  }
}

/** Return how many blocks can no longer change: all but the last, and one less while its first line is incomplete. */
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
