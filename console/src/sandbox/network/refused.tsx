/** Connections and lookups of a sandbox that were refused, with one click to allow each. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { at, describeError } from "../../lib/api";
import { now } from "../../lib/clock";
import { plural, roughDuration, visibleName } from "../../lib/format";
import { attempt, notifySuccess } from "../../lib/notice";
import { followStream } from "../../lib/sse";
import { Button } from "../../parts/button";
import { Loading, LoadError } from "../../parts/state";
import { ACTIONS, Table } from "../../parts/table";
import type { Change, Network } from "./tab";

/** Refusals of one kind. */
interface Refusal {
  host: string;
  port: number | null;
  protocol: string;
  rule: string;
  times: number;
  at_ms: number;
}

/** Limit on the number of rows. */
const ROWS_MAX = 200;
/** After this time without an old event, all old events were read. */
const QUIET_MS = 400;

const keyOf = ({ host, port, protocol, rule }: Refusal): string => JSON.stringify([host, port, protocol, rule]);

/** Refusals that the server still knows, and new ones as they happen; the latest first. */
function useRefusals(sandbox: string): { all: Refusal[] | undefined; wrong: ReturnType<typeof describeError> | undefined; forget: (one: Refusal) => void } {
  const [all, setAll] = useState<ReadonlyMap<string, Refusal>>();
  const [wrong, setWrong] = useState<ReturnType<typeof describeError>>();
  // What is shown comes from here at every later event, so what is forgotten leaves it too.
  const refusals = useRef(new Map<string, Refusal>());
  useEffect(() => {
    const ends = new AbortController();
    const found = new Map<string, Refusal>();
    refusals.current = found;
    const show = (): void => setAll(new Map(found));
    let timer = setTimeout(show, QUIET_MS);
    const follow = async (): Promise<void> => {
      for await (const { kind, data } of followStream(at(sandbox, "events"), { signal: ends.signal, from: "0" })) {
        clearTimeout(timer);
        timer = setTimeout(show, QUIET_MS / 4);
        if (kind !== "network_denied") continue;
        const one = data as unknown as Refusal;
        const key = keyOf(one);
        const times = (found.get(key)?.times ?? 0) + one.times;
        found.delete(key);
        found.set(key, { host: one.host, port: one.port, protocol: one.protocol, rule: one.rule, times, at_ms: one.at_ms });
        if (found.size > ROWS_MAX) found.delete(found.keys().next().value!);
      }
    };
    follow().catch((error: unknown) => !ends.signal.aborted && setWrong(describeError(error)));
    return () => {
      ends.abort();
      clearTimeout(timer);
    };
  }, [sandbox]);
  const forget = (one: Refusal): void => {
    refusals.current.delete(keyOf(one));
    setAll(new Map(refusals.current));
  };
  return { all: all && [...all.values()].reverse(), wrong, forget };
}

/** What the reasons mean that are not a rule of `deny`. */
const REASONS: Record<string, string> = {
  default: "no rule allows it",
  "no name": "the connection names no host",
  "hidden name": "the connection hides its host",
  "other host": "the connection is for another host",
  protocol: "the protocol is neither TLS nor HTTP",
  "bad request": "no valid HTTP request",
  limit: "too many connections at once",
  certificate: "the program does not trust the sandbox's authority",
  host: "this machine",
  private: "a private network",
  "link-local": "a link-local address",
  metadata: "a metadata service",
};

/** The table. */
export function Refused({ sandbox, mode, change }: { sandbox: string; mode: Network["mode"]; change: Change }): JSX.Element {
  const { all, wrong, forget } = useRefusals(sandbox);
  const allow = async (one: Refusal): Promise<void> => {
    const { host, port, protocol, rule, times } = one;
    const done = await attempt(`Could not allow ${host}`, async () => {
      await change({ allow_add: [{ host, port, protocol, rule, times }] });
      return true;
    });
    if (!done) return;
    forget(one);
    notifySuccess(`${host} is allowed`);
  };
  return (
    <section class="refused" aria-label="Refused connections">
      <h2>
        Refused connections {all && <span class="count">{all.length}</span>}
      </h2>
      {wrong ? (
        <LoadError {...wrong} />
      ) : !all ? (
        <Loading rows={2} />
      ) : all.length === 0 ? (
        <p class="none dim">
          {mode === "none" ? "A sandbox without a network has no connections to refuse." : "Nothing was refused lately. Refusals appear here as they happen."}
        </p>
      ) : (
        <Table kind="refusals" label="Refused connections" columns={[{ name: "Host" }, { name: "Protocol" }, { name: "Reason", kind: "medium" }, { name: "Attempts", number: true }, { name: "Last", number: true }, ACTIONS]}>
          {all.map((one) => (
            <tr class="row" key={keyOf(one)} data-host={one.host}>
              <th scope="row" class="mono">
                {visibleName(one.host)}
                {one.port !== null && `:${one.port}`}
              </th>
              <td class="mono dim">{one.protocol}</td>
              <td class="dim medium">{REASONS[one.rule] ?? `rule ${one.rule}`}</td>
              <td class="number dim">{plural(one.times, "attempt")}</td>
              <td class="number cell-age">{roughDuration(now.value - one.at_ms)}</td>
              <td class="acts">
                <Button changes onClick={() => void allow(one)} hint={`Add ${one.host} to the allowed hosts`}>
                  Allow
                </Button>
              </td>
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}
