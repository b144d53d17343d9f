/** Event emitter with typed listeners. */

/** Calls listeners in the order in which they were added. */
export class Emitter<Events extends { [Name in keyof Events]: unknown[] }> {
  readonly #listeners: { [Name in keyof Events]?: Set<(...args: Events[Name]) => void> } = {};

  /**
   * Add a listener.
   *
   * @returns a function that removes the listener.
   */
  on<Name extends keyof Events>(event: Name, listener: (...args: Events[Name]) => void): () => void {
    const all = (this.#listeners[event] ??= new Set());
    all.add(listener);
    return () => void all.delete(listener);
  }

  /**
   * Add a listener for the next event only.
   *
   * @returns a function that removes the listener.
   */
  once<Name extends keyof Events>(event: Name, listener: (...args: Events[Name]) => void): () => void {
    const off = this.on(event, (...args) => {
      off();
      listener(...args);
    });
    return off;
  }

  /** Call all listeners. If one throws, the others still run, and the error is reported as unhandled. */
  protected emit<Name extends keyof Events>(event: Name, ...args: Events[Name]): void {
    for (const listener of [...(this.#listeners[event] ?? [])]) {
      try {
        listener(...args);
      } catch (error) {
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }
}
