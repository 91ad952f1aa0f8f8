// Values that others watch.

/** A value with watchers, which are called when it is set. */
export class Signal {
  constructor(value) {
    this.value = value;
    this.watchers = new Set();
  }

  set(value) {
    this.value = value;
    for (const watcher of [...this.watchers]) watcher(value);
  }

  /** Call the function now and at each change. Returns a function that ends this. */
  watch(watcher) {
    this.watchers.add(watcher);
    watcher(this.value);
    return () => this.watchers.delete(watcher);
  }
}
