/** The way to a server. */

import { IsoletError, refusal } from "./error.js";

/** Where the server is, and the key that opens it. */
export interface ClientOptions {
  /** `http://127.0.0.1:7300`, or what `ISOLET_URL` says. */
  url?: string;
  /** What `ISOLET_API_KEY` says, unless told. */
  apiKey?: string;
}

/** What a call carries beside its path. */
export interface Call {
  method?: string;
  /** Sent as JSON. */
  json?: unknown;
  /** Sent as it is. */
  body?: Uint8Array | string | ReadableStream<Uint8Array>;
  headers?: Record<string, string>;
  /** Aborting it ends the call. */
  signal?: AbortSignal | undefined;
}

/** Sends calls to one server. Holds no connection of its own. */
export class Transport {
  /** Without a slash at its end. */
  readonly url: string;
  readonly #key: string;

  constructor(options: ClientOptions = {}) {
    const url = options.url ?? said("ISOLET_URL") ?? "http://127.0.0.1:7300";
    this.url = url.replace(/\/+$/, "");
    this.#key = options.apiKey ?? said("ISOLET_API_KEY") ?? "";
    if (this.#key === "") {
      throw new IsoletError(0, "no_key", "no API key: give apiKey, or set ISOLET_API_KEY");
    }
  }

  /** What opens the server: for requests that are not sent by {@link Transport.send}. */
  headers(): Record<string, string> {
    return { authorization: `Bearer ${this.#key}` };
  }

  /** Sends a call; an answer that is not 2xx is thrown as {@link IsoletError}. */
  async send(path: string, call: Call = {}): Promise<Response> {
    const headers = { ...call.headers, ...this.headers() };
    const body = call.json === undefined ? call.body : JSON.stringify(call.json);
    if (call.json !== undefined) headers["content-type"] = "application/json";
    const init: RequestInit = { method: call.method ?? (body === undefined ? "GET" : "POST"), headers };
    if (body !== undefined) init.body = body as NonNullable<RequestInit["body"]>;
    if (body instanceof ReadableStream) (init as { duplex?: string }).duplex = "half";
    if (call.signal) init.signal = call.signal;
    let response: Response;
    try {
      response = await fetch(this.url + path, init);
    } catch (error) {
      if (call.signal?.aborted) throw error;
      throw new IsoletError(0, "unreachable", `${this.url} does not answer`, "is the server running?", {
        cause: error,
      });
    }
    if (!response.ok) throw await refusal(response);
    return response;
  }

  /** Sends a call and reads its JSON. */
  async json<T>(path: string, call: Call = {}): Promise<T> {
    return (await (await this.send(path, call)).json()) as T;
  }

  /** The entries of a list, page after page. */
  async *pages<T>(path: string): AsyncGenerator<T> {
    for (let next: string | undefined = path; next !== undefined; ) {
      const response: Response = await this.send(next);
      yield* (await response.json()) as T[];
      // Of the same server alone.
      next = /^<(\/[^/>][^>]*)>; rel="next"$/.exec(response.headers.get("link") ?? "")?.[1];
    }
  }
}

/** A variable of the environment, where there is one: a page has none. */
function said(name: string): string | undefined {
  return typeof process === "undefined" ? undefined : process.env?.[name];
}
