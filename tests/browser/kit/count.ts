/** Reports the number of passed, failed and skipped tests at the end of a run. */

import type { Reporter, Suite } from "@playwright/test/reporter";

export default class Count implements Reporter {
  #all: Suite | undefined;

  onBegin(_config: unknown, suite: Suite): void {
    this.#all = suite;
  }

  onEnd(): void {
    const outcomes = this.#all?.allTests().map((test) => test.outcome()) ?? [];
    const passed = outcomes.filter((outcome) => outcome === "expected").length;
    const skipped = outcomes.filter((outcome) => outcome === "skipped").length;
    const failed = outcomes.length - passed - skipped;
    console.log(`\nbrowser: ${passed} passed, ${failed} failed, ${skipped} skipped`);
  }

  printsToStdio(): boolean {
    return false;
  }
}
