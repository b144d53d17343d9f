/** HTTP requests to a server. */

import { IsoletError, errorFromResponse } from "./error.js";

/** Address and key of a server. */
export interface ClientOptions {
  /** `ISOLET_URL` by default, else `http://127.0.0.1:7300`. */
  url?: string;
  /** `ISOLET_API_KEY` by default. */
  apiKey?: string;
}

/** A request, besides its path. */
export interface Call {
  method?: string;
  /** Body, sent as JSON. */
  json?: unknown;
  /** Body, sent unchanged. */
  body?: Uint8Array | string | ReadableStream<Uint8Array>;
  headers?: Record<string, string>;
  /** Aborting it aborts the request. */
  signal?: AbortSignal | undefined;
}

/** Sends requests to one server. It holds no open connections. */
export class Transport {
  /** Without a trailing slash. */
  readonly url: string;
  readonly #key: string;

  /** @throws {@link IsoletError} `no_key`. */
  constructor(options: ClientOptions = {}) {
    const url = options.url ?? environmentVariable("ISOLET_URL") ?? "http://127.0.0.1:7300";
    this.url = url.replace(/\/+$/, "");
    this.#key = options.apiKey ?? environmentVariable("ISOLET_API_KEY") ?? "";
    if (this.#key === "") {
      throw new IsoletError(0, "no_key", "no API key: pass apiKey or set ISOLET_API_KEY");
    }
  }

  /** Headers that authenticate a request which is not sent through {@link Transport.send}. */
  headers(): Record<string, string> {
    return { authorization: `Bearer ${this.#key}` };
  }

  /**
   * Send a request.
   *
   * @throws {@link IsoletError} for responses other than 2xx, and `unreachable`.
   */
  async send(path: string, call: Call = {}): Promise<Response> {
    const headers = { ...call.headers, ...this.headers() };
    const body = call.json === undefined ? call.body : JSON.stringify(call.json);
    if (call.json !== undefined) headers["content-type"] = "application/json";
    const init: RequestInit = { method: call.method ?? (body === undefined ? "GET" : "POST"), headers };
    if (body !== undefined) init.body = body as NonNullable<RequestInit["body"]>;
    if (body instanceof ReadableStream) (init as { duplex?: string }).duplex = "half";
    if (call.signal) init.signal = call.signal;
    // A browser that has a part of an older version asks for no more than the length which that had. A
    // conditional write does not tell its cache that the file has changed.
    if (headers["range"] !== undefined) init.cache = "no-store";
    let response: Response;
    try {
      response = await fetch(this.url + path, init);
    } catch (error) {
      if (call.signal?.aborted) throw error;
      throw new IsoletError(0, "unreachable", `${this.url} does not answer`, "check that the server is running and that ISOLET_URL is right", {
        cause: error,
      });
    }
    if (!response.ok) throw await errorFromResponse(response);
    return response;
  }

  /** Send a request and parse the JSON response. */
  async json<T>(path: string, call: Call = {}): Promise<T> {
    return (await (await this.send(path, call)).json()) as T;
  }

  /** Iterate over the entries of a paginated list. */
  async *pages<T>(path: string): AsyncGenerator<T> {
    for (let next: string | undefined = path; next !== undefined; ) {
      const response: Response = await this.send(next);
      yield* (await response.json()) as T[];
      // Only paths on the same server are followed.
      next = /^<(\/[^/>][^>]*)>; rel="next"$/.exec(response.headers.get("link") ?? "")?.[1];
    }
  }
}

/** Read an environment variable; web pages have none. */
function environmentVariable(name: string): string | undefined {
  return typeof process === "undefined" ? undefined : process.env?.[name];
}
