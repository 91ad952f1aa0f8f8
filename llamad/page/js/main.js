// Starts the page and switches between views. The part of the address after # names the view.

import { iconButton } from "./base/buttons.js";
import { fill } from "./base/dom.js";
import { ChatView } from "./chat/chat_view.js";
import * as library from "./data/library.js";
import { onKeyNeeded } from "./server/api.js";
import { check } from "./server/server.js";
import { openHelp } from "./views/help.js";
import { InfillView } from "./views/infill_view.js";
import { askKey } from "./views/key_dialog.js";
import { listenToKeys } from "./views/keys.js";
import { LiveView } from "./views/live_view.js";
import { modelPicker } from "./views/model_picker.js";
import { modelsButton } from "./views/models_dialog.js";
import { RawView } from "./views/raw_view.js";
import { openSettings } from "./views/settings.js";
import { Shell } from "./views/shell.js";
import { Sidebar } from "./views/sidebar.js";
import { statusBanner } from "./views/status_banner.js";
import { themeButton } from "./views/theme.js";

const VIEWS = {
  completion: () => new RawView({ openSettings }),
  infill: () => new InfillView(),
  live: () => new LiveView(),
};

class Page {
  constructor() {
    this.view = null;
    const extra = [themeButton(), iconButton("help", "Keyboard", openHelp)];
    this.sidebar = new Sidebar((path) => this.go(path), extra);
    this.settings = iconButton("settings", "Settings", () => this.openSettings());
    this.shell = new Shell(this.sidebar.element, [modelPicker(), modelsButton(), this.settings], statusBanner());
    document.body.prepend(this.shell.skip, this.shell.element);
    addEventListener("hashchange", () => this.show());
    listenToKeys({ newChat: () => this.go("chat"), settings: () => this.openSettings(), help: openHelp });
  }

  /** Show the view of a path, even if it is already shown: "chat" then begins a new conversation. */
  go(path) {
    if (location.hash === `#/${path}`) this.show();
    else location.hash = `#/${path}`;
  }

  openSettings() {
    const conversation = this.view?.conversation ?? null;
    return openSettings(conversation).then(() => this.view?.drawChips?.());
  }

  async show() {
    const path = decodeURIComponent(location.hash.replace(/^#\/?/, ""));
    const [name, id] = path.split("/");
    const conversation = id ? await library.find(id) : null;
    this.view?.leave();
    if (Object.hasOwn(VIEWS, name)) this.view = VIEWS[name]();
    else this.view = this.chat(conversation ?? library.create());
    const isKept = Boolean(conversation) || Object.hasOwn(VIEWS, name);
    this.sidebar.setPath(isKept ? path : "");
    fill(this.shell.main, this.view.element);
    this.shell.closeSidebar();
    if (this.view.composer && !matchMedia("(pointer: coarse)").matches) this.view.composer.area.focus();
  }

  chat(conversation) {
    const onFirstMessage = () => {
      history.replaceState(null, "", `#/chat/${conversation.id}`);
      this.sidebar.setPath(`chat/${conversation.id}`);
    };
    return new ChatView(conversation, { openSettings, onFirstMessage });
  }
}

onKeyNeeded(askKey);
await library.open();
const page = new Page();
await check();
await page.show();
document.documentElement.dataset.ready = "";
