/** Events with typed listeners. */

/** Tells its listeners; each is called in the order in which it came. */
export class Emitter<Events extends { [Name in keyof Events]: unknown[] }> {
  readonly #listeners: { [Name in keyof Events]?: Set<(...told: Events[Name]) => void> } = {};

  /** Calls `listener` at each `event`, until what this returns is called. */
  on<Name extends keyof Events>(event: Name, listener: (...told: Events[Name]) => void): () => void {
    const all = (this.#listeners[event] ??= new Set());
    all.add(listener);
    return () => void all.delete(listener);
  }

  /** As {@link Emitter.on}, for the next time alone. */
  once<Name extends keyof Events>(event: Name, listener: (...told: Events[Name]) => void): () => void {
    const off = this.on(event, (...told) => {
      off();
      listener(...told);
    });
    return off;
  }

  /** Tells the listeners. One that throws holds up no other: its error is the platform's to report. */
  protected tell<Name extends keyof Events>(event: Name, ...told: Events[Name]): void {
    for (const listener of [...(this.#listeners[event] ?? [])]) {
      try {
        listener(...told);
      } catch (error) {
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }
}
