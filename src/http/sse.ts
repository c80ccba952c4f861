/**
 * One server-sent event. `data` is JSON, which has no raw line breaks; id and event are checked for them.
 * Without an id the reader's cursor stays where it was.
 */
export function serverSentEvent(event: {
  readonly id: string | null;
  readonly event: string;
  readonly data: unknown;
}): string {
  const id = event.id === null ? "" : `id: ${oneLine(event.id)}\n`;
  return `${id}event: ${oneLine(event.event)}\ndata: ${JSON.stringify(event.data)}\n\n`;
}

/** Nothing happened, but the connection lives. */
export const heartbeat = ": \n\n";

export function retryAfter(milliseconds: number): string {
  return `retry: ${milliseconds}\n\n`;
}

/** A line break would end the field and let its rest pose as another one; NUL makes a reader drop the id. */
function oneLine(text: string): string {
  // oxlint-disable-next-line no-control-regex -- these are what it looks for
  if (/[\r\n\u0000]/.test(text)) throw new Error("an event's field must be one line");
  return text;
}
