/** Server-sent events of one answer. */

/** One event. */
export interface ServerEvent {
  event: string;
  data: string;
}

/** The events of a stream, in order, up to its end. */
export async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const part of body as unknown as AsyncIterable<Uint8Array>) {
    rest += decoder.decode(part, { stream: true });
    for (;;) {
      const end = rest.indexOf("\n\n");
      if (end < 0) break;
      const block = rest.slice(0, end);
      rest = rest.slice(end + 2);
      const event = parse(block);
      if (event) yield event;
    }
  }
}

function parse(block: string): ServerEvent | undefined {
  let event = "message";
  const data: string[] = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
  }
  return data.length > 0 ? { event, data: data.join("\n") } : undefined;
}
