// Scrolls a conversation: it follows a text that grows, until a person scrolls up.

const NEAR_PX = 60;

export class StickyScroll {
  /** `jump` is the button that leads back to the end. */
  constructor(scroller, jump) {
    this.scroller = scroller;
    this.jump = jump;
    this.follows = true;
    this.onScroll = () => this.look();
    scroller.addEventListener("scroll", this.onScroll, { passive: true });
    this.observer = new ResizeObserver(() => (this.follows ? this.toEnd() : this.look()));
    this.observer.observe(scroller.firstElementChild);
    this.observer.observe(scroller);
    this.look();
  }

  look() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    this.follows = scrollHeight - scrollTop - clientHeight < NEAR_PX;
    this.jump.hidden = this.follows;
  }

  toEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.follows = true;
    this.jump.hidden = true;
  }

  leave() {
    this.observer.disconnect();
  }
}
