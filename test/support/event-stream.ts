import assert from "node:assert/strict";
import { request as httpRequest, type IncomingMessage } from "node:http";
import type { ChangeEvent } from "../../src/wire/job.ts";

export interface StreamEvent {
  readonly id: string | null;
  readonly event: string;
  readonly data: unknown;
}

/** A watch stream as a client sees it, block by block. */
export interface EventStream {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  /** The next event that is no bookmark; null when the stream has ended. */
  change(): Promise<ChangeEvent | null>;
  /** The next event of any kind; null when the stream has ended. */
  next(): Promise<StreamEvent | null>;
  /** Comments so far. */
  comments(): number;
  /** Takes nothing more from the socket. */
  stall(): void;
  resume(): void;
  close(): void;
}

export async function openEvents(
  url: string,
  token: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<EventStream> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const sent = httpRequest(
      url,
      { headers: { authorization: `Bearer ${token}`, ...headers }, agent: false },
      resolve,
    );
    sent.on("error", reject);
    sent.end();
  });
  const events: StreamEvent[] = [];
  let comments = 0;
  let text = "";
  let ended = false;
  let wake = () => {};
  response.setEncoding("utf8");
  response.on("data", (data: string) => {
    text += data;
    for (let at = text.indexOf("\n\n"); at >= 0; at = text.indexOf("\n\n")) {
      const event = parseBlock(text.slice(0, at));
      text = text.slice(at + 2);
      if (event === null) comments += 1;
      else if (event.event !== "") events.push(event);
    }
    wake();
  });
  response.on("error", () => undefined);
  response.on("close", () => {
    ended = true;
    wake();
  });
  const next = async (): Promise<StreamEvent | null> => {
    const late = AbortSignal.timeout(20_000);
    for (;;) {
      const event = events.shift();
      if (event !== undefined) return event;
      if (ended) return null;
      await new Promise<void>((resolve) => {
        wake = resolve;
        late.addEventListener("abort", () => resolve());
      });
      assert.ok(!late.aborted, "no event came");
    }
  };
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    next,
    async change() {
      for (;;) {
        const event = await next();
        if (event === null) return null;
        if (event.event !== "bookmark") return event.data as ChangeEvent;
      }
    },
    comments: () => comments,
    stall: () => void response.pause(),
    resume: () => void response.resume(),
    close: () => void response.destroy(),
  };
}

/** Null for a comment; an event without a name for what only sets the retry time. */
function parseBlock(block: string): StreamEvent | null {
  if (block.startsWith(":")) return null;
  const fields = new Map(
    block.split("\n").map((line): [string, string] => {
      const at = line.indexOf(": ");
      return [line.slice(0, at), line.slice(at + 2)];
    }),
  );
  const data = fields.get("data");
  return {
    id: fields.get("id") ?? null,
    event: fields.get("event") ?? "",
    data: data === undefined ? null : JSON.parse(data),
  };
}
