/** Parts of a terminal that need no server. */

import { expect, test } from "vitest";
import { delay } from "../src/backoff.js";
import { OutputMatcher } from "../src/output-matcher.js";
import { Frames, type FrameHandler } from "../src/frames.js";
import { IsoletError } from "../src/index.js";
import { WriteQueue } from "../src/write-queue.js";

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const text = (data: Uint8Array): string => new TextDecoder().decode(data);

function handled(...messages: (string | Uint8Array)[]): unknown[] {
  const calls: unknown[] = [];
  const record =
    (what: string) =>
    (value?: unknown): void =>
      void calls.push([what, value instanceof Uint8Array ? text(value) : value]);
  const handler = new Proxy({} as FrameHandler, { get: (_, what: string) => record(what) });
  const frames = new Frames(handler);
  for (const message of messages) frames.take(message);
  return calls;
}

test("a snapshot is complete however its bytes are split, and is not output", () => {
  const head = '{"type":"snapshot","bytes":5,"missed":7}';
  const complete = [["snapshot", { bytes: bytes("abcde"), missed: 7 }]];
  const rest = [
    ["at", 12],
    ["output", "x"],
  ];
  const at = '{"type":"at","terminal":"t","offset":12}';
  expect(handled(head, bytes("abcde"), at, bytes("x"))).toEqual([...complete, ...rest]);
  expect(handled(head, bytes("a"), bytes("bcd"), bytes("e"), at, bytes("x"))).toEqual([...complete, ...rest]);
  expect(handled(head, bytes("ab"), bytes("cdex"))).toEqual([...complete, ["output", "x"]]);
  expect(handled('{"type":"snapshot","bytes":0,"missed":0}', bytes("x"))).toEqual([
    ["snapshot", { bytes: bytes(""), missed: 0 }],
    ["output", "x"],
  ]);
});

test("unknown frames are ignored", () => {
  expect(handled("{", "[]", "null", "3", '{"type":"later"}', '{"type":"pong"}', '{"type":"ready"}')).toEqual([
    ["ready", undefined],
  ]);
});

test("a wait returns the output up to its match, and the next one searches after it", async () => {
  const output = new OutputMatcher();
  output.take(bytes("one two"));
  expect(await output.wait("one", 1000)).toBe("one");
  const two = output.wait(/t\w+ $/, 1000);
  const three = output.wait("three", 1000);
  output.take(bytes(" "));
  output.take(bytes("a three and more"));
  expect(await two).toBe(" two ");
  expect(await three).toBe("a three");
  const late = output.wait("never", 20);
  await expect(late).rejects.toMatchObject({ code: "timeout" });
  const ended = output.wait("never", 1000);
  output.end(new IsoletError(0, "exited", "over"));
  await expect(ended).rejects.toMatchObject({ code: "exited" });
  await expect(output.wait("never", 1000)).rejects.toMatchObject({ code: "exited" });
});

test("a wait finds characters whose bytes are split, and buffers no more than its limit", async () => {
  const output = new OutputMatcher();
  const [first, ...others] = bytes("€uro");
  output.take(Uint8Array.of(first!));
  const euro = output.wait("€", 1000);
  output.take(Uint8Array.from(others));
  expect(await euro).toBe("€");
  for (let i = 0; i < 100; i++) output.take(new Uint8Array(64 * 1024).fill(65));
  output.take(bytes("end"));
  expect((await output.wait("end", 1000)).length).toBeLessThanOrEqual(320 * 1024);
});

test("steps run between the bytes before and after them", async () => {
  const log: string[] = [];
  const later: (() => void)[] = [];
  const screen = {
    write: (data: Uint8Array, done: () => void): void => void later.push(() => (log.push(text(data)), done())),
  };
  const unparsed: number[] = [];
  const queue = new WriteQueue(screen, (left) => unparsed.push(left));
  queue.write(bytes("a"));
  queue.write(bytes("bb"));
  queue.then(() => log.push("step"));
  queue.then(() => log.push("step 2"));
  queue.write(bytes("c"));
  expect(queue.unparsed).toBe(4);
  expect(later.length).toBe(2);
  // xterm.js calls back inside its parser loop, where steps must not run.
  for (const parse of later.splice(0)) parse();
  expect(log).toEqual(["a", "bb"]);
  await Promise.resolve();
  for (const parse of later.splice(0)) parse();
  await Promise.resolve();
  expect(log).toEqual(["a", "bb", "step", "step 2", "c"]);
  expect(unparsed.at(-1)).toBe(0);
});

test("delays between attempts grow, vary, and have a maximum", () => {
  const waits = Array.from({ length: 100 }, (_, failed) => delay(true, failed));
  expect(Math.min(...waits)).toBeGreaterThanOrEqual(125);
  expect(Math.max(...waits)).toBeLessThanOrEqual(10_000);
  expect(new Set(waits.slice(10)).size).toBeGreaterThan(10);
  expect(delay({ initialDelayMs: 10, maxDelayMs: 20 }, 50)).toBeLessThanOrEqual(20);
});
