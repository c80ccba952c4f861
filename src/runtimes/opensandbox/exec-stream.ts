import { isRecord } from "./service-error.ts";

/** One event of a running command. `completed` of a background command only says that it was detached. */
export type ExecEvent =
  | { readonly is: "init"; readonly command: string }
  | { readonly is: "stdout" | "stderr"; readonly text: string }
  | { readonly is: "ping" }
  | { readonly is: "failed"; readonly exitCode: number | null; readonly message: string }
  | { readonly is: "completed" }
  | { readonly is: "unknown" };

const frameBytesMax = 1024 * 1024;

/**
 * Cuts the daemon's stream into events. It calls itself text/event-stream, but its frames are bare JSON between
 * blank lines; a `data:` in front, as the name promises, is taken as well. Bytes are cut at line ends before they
 * are decoded, so a part may end inside a character.
 */
export class ExecEventCutter {
  #rest: Buffer = Buffer.alloc(0);

  push(part: Uint8Array): readonly ExecEvent[] {
    let bytes = this.#rest.length === 0 ? Buffer.from(part) : Buffer.concat([this.#rest, part]);
    const events: ExecEvent[] = [];
    for (let end = bytes.indexOf(10); end !== -1; end = bytes.indexOf(10)) {
      const event = readFrame(bytes.toString("utf8", 0, end));
      if (event !== null) events.push(event);
      bytes = bytes.subarray(end + 1);
    }
    if (bytes.length > frameBytesMax) throw new TypeError(`a frame is longer than ${frameBytesMax} bytes`);
    this.#rest = bytes;
    return events;
  }
}

function readFrame(line: string): ExecEvent | null {
  const text = line.replace(/^data:/, "").trim();
  if (!text.startsWith("{")) return null;
  const frame: unknown = JSON.parse(text);
  if (!isRecord(frame)) return null;
  const words = typeof frame.text === "string" ? frame.text : "";
  switch (frame.type) {
    case "init":
      return { is: "init", command: words };
    case "stdout":
    case "stderr":
      return { is: frame.type, text: words };
    case "ping":
      return { is: "ping" };
    case "execution_complete":
      return { is: "completed" };
    case "error":
      return readFailure(isRecord(frame.error) ? frame.error : frame);
    default:
      return { is: "unknown" };
  }
}

function readFailure({ ename, evalue, traceback }: Readonly<Record<string, unknown>>): ExecEvent {
  const value = typeof evalue === "string" ? evalue : "";
  const trace = Array.isArray(traceback) ? traceback.join(" ") : "";
  const message = `${typeof ename === "string" ? ename : "error"} ${value} ${trace}`.trim();
  return { is: "failed", exitCode: /^\d{1,3}$/.test(value) ? Number(value) : null, message };
}
