// The view of one message and its actions. The chat view decides what the actions do.

import { announce } from "../base/announce.js";
import { button, iconButton } from "../base/buttons.js";
import { copyButton } from "../base/copy.js";
import { fill, h } from "../base/dom.js";
import { count, decimal } from "../base/format.js";
import { LiveMarkdown } from "../text/live_markdown.js";
import { renderMarkdown } from "../text/render.js";
import { mediaElement } from "./attachments.js";
import { editForm } from "./edit_form.js";
import { callFold, resultFold, ThoughtFold } from "./folds.js";

const NAMES = { user: "You", assistant: "Assistant", tool: "Tool" };

export class MessageView {
  /** `actions`: edit(node, text), regenerate, resume, remove, sibling(node, step). */
  constructor(node, actions) {
    this.node = node;
    this.actions = actions;
    this.head = h("h2.visually-hidden", { tabindex: "-1" }, NAMES[node.role]);
    this.body = h("div.message-body");
    this.foot = h("div.message-foot");
    this.element = h(`article.message.${node.role}`, {}, this.head, this.body, this.foot);
    this.live = null;
    this.thought = null;
  }

  /** Draw the message; `place` is {at, count} among its siblings, `generation` is the one that writes it. */
  update(place, generation, toolName = "") {
    this.place = place;
    if (this.node.role === "user") this.drawUser();
    else if (this.node.role === "tool") fill(this.body, resultFold(this.node, toolName));
    else this.drawAssistant(generation);
    this.drawFoot(Boolean(generation));
  }

  /** Update the switcher after another version was added or removed. */
  setPlace(place) {
    const isSame = place.at === this.place.at && place.count === this.place.count;
    this.place = place;
    if (!isSame && !this.live && !this.body.querySelector(".edit-form")) this.drawFoot(false);
  }

  drawUser() {
    const media = this.node.media ?? [];
    fill(
      this.body,
      media.length > 0 && h("div.media-list", {}, media.map(mediaElement)),
      this.node.content && h("div.bubble", {}, this.node.content),
    );
  }

  drawAssistant(generation) {
    const { node } = this;
    if (generation) this.drawGrowing(generation);
    else {
      this.live = null;
      this.thought = node.reasoning ? new ThoughtFold() : null;
      this.thought?.update(node.reasoning, false);
      fill(
        this.body,
        this.thought?.element,
        h("div.markdown", {}, renderMarkdown(node.content)),
        (node.calls ?? []).map(callFold),
      );
    }
    if (node.error) this.body.append(this.errorElement());
  }

  /** Draw the first frame of an answer; `grow` does the rest. */
  drawGrowing(generation) {
    this.markdown = h("div.markdown");
    this.live = new LiveMarkdown(this.markdown, (element) => announce(element.textContent));
    this.thought = new ThoughtFold();
    this.thought.element.hidden = true;
    this.calls = h("div");
    this.waiting = h("p.waiting", {}, h("span.dots", { "aria-hidden": "true" }, h("i"), h("i"), h("i")), h("span"));
    fill(this.body, this.thought.element, this.markdown, this.calls, this.waiting);
    this.grow(generation);
  }

  /** Show new text. */
  grow(generation) {
    const { node } = this;
    if (!this.live) return;
    this.thought.element.hidden = !node.reasoning;
    if (node.reasoning) this.thought.update(node.reasoning, !node.content);
    this.live.update(node.content);
    if (node.calls) fill(this.calls, node.calls.map(callFold));
    this.waiting.hidden = generation.phase === "writing" && Boolean(node.content || node.calls);
    const percent = Math.round(generation.progress * 100);
    this.waiting.lastChild.textContent =
      generation.phase === "reading" && percent < 100 ? `Reading the prompt, ${percent} %` : "";
  }

  /** Finish a complete answer. What is shown stays, so that nothing jumps. */
  finish(place) {
    const { node, live } = this;
    this.live = null;
    if (!live) return this.update(place, null);
    this.place = place;
    live.finish(node.content);
    this.waiting.remove();
    if (node.reasoning) this.thought.update(node.reasoning, false);
    else this.thought.element.remove();
    if (node.error) this.body.append(this.errorElement());
    this.drawFoot(false);
  }

  errorElement() {
    return h(
      "div.error",
      { role: "alert" },
      h("p", {}, this.node.error),
      button("Try again", () => this.actions.regenerate(this.node), { icon: "redo" }),
    );
  }

  drawFoot(isGrowing) {
    const { node, actions } = this;
    const isAnswer = node.role === "assistant";
    this.element.setAttribute("aria-busy", String(isGrowing));
    fill(
      this.foot,
      this.place.count > 1 && !isGrowing && this.branchElement(),
      !isGrowing && [
        node.content && copyButton(() => node.content, "Copy message"),
        node.role !== "tool" && iconButton("edit", "Edit message", () => this.edit()),
        isAnswer && iconButton("redo", "Write again", () => actions.regenerate(node)),
        isAnswer && node.isStopped && node.content && iconButton("forward", "Continue", () => actions.resume(node)),
        iconButton("trash", "Delete message", () => actions.remove(node)),
      ],
      isAnswer && !isGrowing && this.statsElement(),
    );
  }

  /** Return the switcher between several versions. */
  branchElement() {
    const { at, count: total } = this.place;
    const step = (by) => this.actions.sibling(this.node, by);
    return h(
      "div.branches",
      { role: "group", "aria-label": "Versions" },
      iconButton("back", "Previous version", () => step(-1), { disabled: at === 0 }),
      h("span", { "aria-label": `Version ${at + 1} of ${total}` }, `${at + 1}/${total}`),
      iconButton("forward", "Next version", () => step(1), { disabled: at === total - 1 }),
    );
  }

  statsElement() {
    const { timings, isStopped, finish } = this.node;
    const parts = [];
    if (isStopped) parts.push(finish === "length" ? "reached its limit" : "stopped");
    if (timings?.predicted_n) parts.push(`${count(timings.predicted_n)} tokens`);
    if (timings?.predicted_per_second) parts.push(`${decimal(timings.predicted_per_second)} tokens/s`);
    if (timings?.prompt_n !== undefined)
      parts.push(`${count(timings.prompt_n + (timings.cache_n ?? 0))} in the prompt`);
    if (timings?.cache_n) parts.push(`${count(timings.cache_n)} cached`);
    return parts.length > 0 && h("span.stats", {}, parts.join(" · "));
  }

  /** Edit the message in place; saving makes another version. */
  edit() {
    const { node } = this;
    const done = (text) => {
      if (text === null) this.update(this.place, null);
      else this.actions.edit(node, text);
      if (text === null) this.foot.querySelector('[aria-label="Edit message"]')?.focus();
    };
    fill(this.body, editForm(node.content, node.role === "user" ? "Send" : "Save", done));
    fill(this.foot);
    this.body.querySelector("textarea").focus();
  }
}
