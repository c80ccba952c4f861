/** One event of a server-sent stream, as its fields are after the blank line that ends it. */
export interface StreamEvent {
  readonly id: string | null;
  readonly event: string;
  readonly data: string;
}

/** Server-sent events from their lines (HTML, section 9.2). Comments are heartbeats and are left out. */
export async function* streamEvents(
  lines: AsyncIterable<string>,
): AsyncGenerator<StreamEvent, void, undefined> {
  let id: string | null = null;
  let event = "message";
  let data: string[] = [];
  for await (const line of lines) {
    if (line === "") {
      if (data.length > 0) yield { id, event, data: data.join("\n") };
      id = null;
      event = "message";
      data = [];
      continue;
    }
    const colon = line.indexOf(":");
    const field = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "id" && !value.includes("\0")) id = value;
    else if (field === "event") event = value;
    else if (field === "data") data.push(value);
  }
}
