/** Reports flaky tests and the number of passed, failed and skipped tests at the end of a run. */

import type { Reporter, Suite } from "@playwright/test/reporter";

export default class Count implements Reporter {
  #all: Suite | undefined;

  onBegin(_config: unknown, suite: Suite): void {
    this.#all = suite;
  }

  onEnd(): void {
    for (const test of this.#all?.allTests() ?? []) {
      if (test.outcome() === "flaky") console.log(`FLAKY tests/browser ${test.titlePath().filter(Boolean).join(" > ")}`);
    }
    const outcomes = this.#all?.allTests().map((test) => test.outcome()) ?? [];
    const passed = outcomes.filter((outcome) => outcome === "expected" || outcome === "flaky").length;
    const skipped = outcomes.filter((outcome) => outcome === "skipped").length;
    const failed = outcomes.length - passed - skipped;
    console.log(`\nbrowser: ${passed} passed, ${failed} failed, ${skipped} skipped`);
  }

  printsToStdio(): boolean {
    return false;
  }
}
