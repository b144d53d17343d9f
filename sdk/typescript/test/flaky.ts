/** Lists the tests that passed only when they were retried. */

import type { Reporter, TestCase } from "vitest/node";

export default class Flaky implements Reporter {
  onTestCaseResult(test: TestCase): void {
    if (test.diagnostic()?.flaky) console.log(`FLAKY sdk/typescript ${test.module.moduleId} > ${test.fullName}`);
  }
}
