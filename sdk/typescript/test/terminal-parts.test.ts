/** The parts of a terminal that need no server. */

import { expect, test } from "vitest";
import { delay } from "../src/backoff.js";
import { Expect } from "../src/expect.js";
import { Frames, type Hearer } from "../src/frames.js";
import { IsoletError } from "../src/index.js";
import { Ordered } from "../src/ordered.js";

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const text = (data: Uint8Array): string => new TextDecoder().decode(data);

function heard(...messages: (string | Uint8Array)[]): unknown[] {
  const said: unknown[] = [];
  const note =
    (what: string) =>
    (value?: unknown): void =>
      void said.push([what, value instanceof Uint8Array ? text(value) : value]);
  const hearer = new Proxy({} as Hearer, { get: (_, what: string) => note(what) });
  const frames = new Frames(hearer);
  for (const message of messages) frames.take(message);
  return said;
}

test("a snapshot is told whole, however it comes, and is no output", () => {
  const head = '{"type":"snapshot","bytes":5,"missed":7}';
  const whole = [["snapshot", { bytes: bytes("abcde"), missed: 7 }]];
  const rest = [
    ["at", 12],
    ["output", "x"],
  ];
  const at = '{"type":"at","terminal":"t","offset":12}';
  expect(heard(head, bytes("abcde"), at, bytes("x"))).toEqual([...whole, ...rest]);
  expect(heard(head, bytes("a"), bytes("bcd"), bytes("e"), at, bytes("x"))).toEqual([...whole, ...rest]);
  expect(heard(head, bytes("ab"), bytes("cdex"))).toEqual([...whole, ["output", "x"]]);
  expect(heard('{"type":"snapshot","bytes":0,"missed":0}', bytes("x"))).toEqual([
    ["snapshot", { bytes: bytes(""), missed: 0 }],
    ["output", "x"],
  ]);
});

test("what is not understood is passed over", () => {
  expect(heard("{", "[]", "null", "3", '{"type":"later"}', '{"type":"pong"}', '{"type":"ready"}')).toEqual([
    ["ready", undefined],
  ]);
});

test("a wait gives what is up to its match, and the next looks behind it", async () => {
  const shown = new Expect();
  shown.take(bytes("one two"));
  expect(await shown.wait("one", 1000)).toBe("one");
  const two = shown.wait(/t\w+ $/, 1000);
  const three = shown.wait("three", 1000);
  shown.take(bytes(" "));
  shown.take(bytes("a three and more"));
  expect(await two).toBe(" two ");
  expect(await three).toBe("a three");
  const late = shown.wait("never", 20);
  await expect(late).rejects.toMatchObject({ code: "timeout" });
  const ended = shown.wait("never", 1000);
  shown.end(new IsoletError(0, "exited", "over"));
  await expect(ended).rejects.toMatchObject({ code: "exited" });
  await expect(shown.wait("never", 1000)).rejects.toMatchObject({ code: "exited" });
});

test("a wait sees characters whose bytes come apart, and keeps no more than it says", async () => {
  const shown = new Expect();
  const [first, ...others] = bytes("€uro");
  shown.take(Uint8Array.of(first!));
  const euro = shown.wait("€", 1000);
  shown.take(Uint8Array.from(others));
  expect(await euro).toBe("€");
  for (let i = 0; i < 100; i++) shown.take(new Uint8Array(64 * 1024).fill(65));
  shown.take(bytes("end"));
  expect((await shown.wait("end", 1000)).length).toBeLessThanOrEqual(320 * 1024);
});

test("steps happen between the bytes before and behind them", async () => {
  const log: string[] = [];
  const later: (() => void)[] = [];
  const screen = {
    write: (data: Uint8Array, done: () => void): void => void later.push(() => (log.push(text(data)), done())),
  };
  const unparsed: number[] = [];
  const ordered = new Ordered(screen, (left) => unparsed.push(left));
  ordered.write(bytes("a"));
  ordered.write(bytes("bb"));
  ordered.then(() => log.push("step"));
  ordered.then(() => log.push("step 2"));
  ordered.write(bytes("c"));
  expect(ordered.unparsed).toBe(4);
  expect(later.length).toBe(2);
  // xterm.js calls back in its own loop: nothing may happen inside of it.
  for (const parse of later.splice(0)) parse();
  expect(log).toEqual(["a", "bb"]);
  await Promise.resolve();
  for (const parse of later.splice(0)) parse();
  await Promise.resolve();
  expect(log).toEqual(["a", "bb", "step", "step 2", "c"]);
  expect(unparsed.at(-1)).toBe(0);
});

test("waits between tries grow, differ, and have a bound", () => {
  const waits = Array.from({ length: 100 }, (_, failed) => delay(true, failed));
  expect(Math.min(...waits)).toBeGreaterThanOrEqual(125);
  expect(Math.max(...waits)).toBeLessThanOrEqual(10_000);
  expect(new Set(waits.slice(10)).size).toBeGreaterThan(10);
  expect(delay({ firstMs: 10, mostMs: 20 }, 50)).toBeLessThanOrEqual(20);
});
