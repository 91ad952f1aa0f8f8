// The view of a conversation: its messages, their actions, and the composer below.

import { announce } from "../base/announce.js";
import { button, iconButton } from "../base/buttons.js";
import { confirmed } from "../base/dialogs.js";
import { fill, h, reconcile } from "../base/dom.js";
import * as library from "../data/library.js";
import { preferences } from "../data/preferences.js";
import * as tree from "../data/tree.js";
import { props } from "../server/server.js";
import { Composer } from "./composer.js";
import { acceptDrops } from "./drop_zone.js";
import { emptyState } from "./empty_state.js";
import { resultForm } from "./folds.js";
import { generate, generationOf } from "./generation.js";
import { MessageView } from "./message_view.js";
import { StickyScroll } from "./sticky_scroll.js";

export class ChatView {
  /** `openSettings` shows the settings of a conversation and resolves when they are closed. */
  constructor(conversation, { openSettings, onFirstMessage }) {
    this.conversation = conversation;
    this.openSettings = openSettings;
    this.onFirstMessage = onFirstMessage;
    this.views = new Map(); // the id of a node → its MessageView
    this.log = h("div.messages");
    this.after = h("div.after");
    this.composer = new Composer({
      send: (message) => this.send(message),
      stop: () => generationOf(conversation)?.stop(),
      editLast: () => this.editLast(),
    });
    this.jump = iconButton("arrowDown", "To the latest message", () => this.scroll.toEnd());
    this.jump.classList.add("jump");
    this.scroller = h("div.scroller", {}, h("div.column", {}, this.log, this.after));
    this.scroll = new StickyScroll(this.scroller, this.jump);
    this.problem = h("p.problem", { role: "alert" });
    const dock = h("div.dock", {}, this.jump, h("div.column", {}, this.problem, this.composer.element));
    this.element = h("div.chat", {}, this.scroller, dock);
    this.endDrops = acceptDrops(this.element, this.composer.attachments);
    this.onKey = (event) => {
      if (event.key === "Escape" && !event.defaultPrevented && !document.querySelector("dialog[open]"))
        generationOf(conversation)?.stop();
    };
    document.addEventListener("keydown", this.onKey);
    this.unwatch = [
      library.saveProblem.watch((text) => (this.problem.textContent = text)),
      props.watch(() => this.element.classList.contains("empty") && this.draw()), // the empty state names the model
    ];
    this.draw();
    this.follow();
    requestAnimationFrame(() => this.scroll.toEnd());
  }

  /** Draw the chosen path. Views of messages that stay are kept. */
  draw() {
    const { conversation } = this;
    const path = tree.shownPath(conversation);
    const generation = generationOf(conversation);
    const names = new Map(path.flatMap((node) => (node.calls ?? []).map((call) => [call.id, call.name])));
    const elements = path.map((node) => {
      const place = tree.placeOf(conversation, node.id);
      let view = this.views.get(node.id);
      if (!view) {
        view = new MessageView(node, this.actions());
        this.views.set(node.id, view);
        view.update(place, generation?.node === node ? generation : null, names.get(node.callId));
      } else if (generation?.node !== node) {
        view.setPlace(place);
      }
      return view.element;
    });
    reconcile(this.log, path.length ? elements : [emptyState((text) => this.send({ text, media: [] }))]);
    this.element.classList.toggle("empty", path.length === 0);
    this.drawAfter(path.at(-1), generation);
    this.composer.setBusy(Boolean(generation));
    this.drawChips();
  }

  /** Show which settings affect the answers. */
  drawChips() {
    const { conversation } = this;
    this.composer.setChips(chipsOf(conversation), () => this.openSettings(conversation).then(() => this.drawChips()));
  }

  /** Draw what follows the last message: a form for results of tools, or a button if an answer is missing. */
  drawAfter(last, generation) {
    fill(this.after);
    if (!last || generation) return;
    if (last.role === "assistant" && last.calls?.length) {
      this.after.append(resultForm(last.calls, (results) => this.sendResults(last, results)));
    } else if (last.role !== "assistant") {
      this.after.append(button("Answer", () => this.answer(last.id), { icon: "play" }));
    }
  }

  actions() {
    return {
      edit: (node, text) => this.edit(node, text),
      regenerate: (node) => this.answer(node.parent),
      resume: (node) => this.resume(node),
      remove: (node) => this.remove(node),
      sibling: (node, step) => this.sibling(node, step),
    };
  }

  /** Add a message at the end, and generate its answer. */
  send({ text, media }) {
    const isFirst = Object.keys(this.conversation.nodes).length === 0;
    const last = tree.shownPath(this.conversation).at(-1);
    const node = tree.addNode(this.conversation, last?.id ?? null, {
      role: "user",
      content: text,
      ...(media.length && { media }),
    });
    this.answer(node.id);
    this.composer.area.focus();
    if (isFirst) library.save(this.conversation).then(this.onFirstMessage);
  }

  sendResults(last, results) {
    let parent = last.id;
    for (const [at, call] of last.calls.entries()) {
      parent = tree.addNode(this.conversation, parent, { role: "tool", callId: call.id, content: results[at] }).id;
    }
    this.answer(parent);
    this.composer.area.focus();
  }

  /** Generate a new answer below a node, in addition to those that exist. */
  answer(parent) {
    generationOf(this.conversation)?.stop();
    const node = tree.addNode(this.conversation, parent, { role: "assistant", content: "" });
    this.conversation.updated = Date.now();
    generate(this.conversation, node);
    announce("The answer is being written");
    this.draw();
    this.follow();
    this.scroll.toEnd();
  }

  /** Continue an answer that was stopped. */
  resume(node) {
    this.views.delete(node.id);
    generate(this.conversation, node, true);
    this.draw();
    this.follow();
    this.composer.area.focus();
  }

  /** Show the progress of the running answer. */
  follow() {
    const generation = generationOf(this.conversation);
    if (!generation) return;
    generation.onchange = (isDone) => {
      const view = this.views.get(generation.node.id);
      if (isDone) {
        view?.finish(tree.placeOf(this.conversation, generation.node.id));
        announce(
          generation.node.error
            ? "The answer failed"
            : generation.node.isStopped
              ? "Stopped"
              : "The answer is complete",
        );
        this.draw();
      } else {
        view?.grow(generation);
      }
    };
  }

  /** Save an edited message as another version. A question is asked again; an answer is only stored. */
  edit(node, text) {
    this.views.delete(node.id);
    const { media } = node;
    const copy = {
      role: node.role,
      content: text,
      ...(media && { media }),
      ...(node.reasoning && { reasoning: node.reasoning }),
    };
    const edited = tree.addNode(this.conversation, node.parent, copy);
    if (node.role === "user") this.answer(edited.id);
    else {
      this.keep();
      this.draw();
    }
    this.composer.area.focus();
  }

  editLast() {
    const last = tree.shownPath(this.conversation).findLast((node) => node.role === "user");
    if (last && !generationOf(this.conversation)) this.views.get(last.id).edit();
  }

  sibling(node, step) {
    const { at } = tree.placeOf(this.conversation, node.id);
    tree.chooseSibling(this.conversation, node.id, step);
    this.keep();
    this.draw();
    const shown = tree.childrenOf(this.conversation, node.parent)[at + step];
    const label = step > 0 ? "Next version" : "Previous version";
    const buttons = this.views.get(shown.id).foot.querySelector(".branches");
    (buttons.querySelector(`[aria-label="${label}"]:enabled`) ?? buttons.querySelector("button:enabled")).focus();
  }

  async remove(node) {
    const below = tree.childrenOf(this.conversation, node.id).length > 0;
    const text = below ? "The message and all that follows it are removed." : "The message is removed.";
    if (!(await confirmed("Delete message", text, "Delete"))) return;
    generationOf(this.conversation)?.stop();
    tree.removeNode(this.conversation, node.id);
    this.keep();
    this.draw();
    this.composer.area.focus();
  }

  keep() {
    library.save(this.conversation);
  }

  /** Clean up, because another view is shown. */
  leave() {
    const generation = generationOf(this.conversation);
    if (generation) generation.onchange = () => {};
    document.removeEventListener("keydown", this.onKey);
    this.composer.leave();
    this.endDrops();
    for (const end of this.unwatch) end();
    this.scroll.leave();
  }
}

/** Return labels for the settings that affect the answers, because a person may have forgotten them. */
function chipsOf(conversation) {
  const thinking = preferences.get("thinking", "auto");
  return [
    conversation.system.trim() && "System prompt",
    conversation.format === "json" && "JSON",
    conversation.format === "schema" && "JSON schema",
    conversation.tools.trim() && "Tools",
    thinking !== "auto" && `Thinking ${thinking}`,
  ].filter(Boolean);
}
