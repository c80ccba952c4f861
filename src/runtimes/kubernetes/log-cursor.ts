import { RuntimeRefusal } from "../../core/runtime.port.ts";
import type { LogPiece } from "./log-lines.ts";

/**
 * Where a reader stands in a container's log. The server resumes at whole seconds only, and two streams may
 * come some microseconds out of order, so the place is: the `lines`-th line since the second `base`, which is
 * the one before the newest second seen, and `pieces` of the line after it.
 */
export interface LogCursor {
  /** Nanoseconds: the time of the last line that was given, whole or in part. */
  readonly at: bigint;
  readonly base: bigint;
  readonly lines: number;
  readonly pieces: number;
  /** Output given so far, for the bound. */
  readonly bytes: number;
  /** `gap`: the next lines are told by their time, as the log in between is gone. `end`: nothing follows. */
  readonly state: "whole" | "gap" | "end";
}

const states = { w: "whole", g: "gap", e: "end" } as const;
const pattern = /^([0-9a-f-]{36}):(\d{1,20}):(\d{1,11}):(\d{1,15}):(\d{1,9}):(\d{1,15}):([wge])$/;

export function readCursor(text: string | null, uid: string): LogCursor | null {
  if (text === null) return null;
  const match = pattern.exec(text);
  const [, owner, at = "", base = "", lines, pieces, bytes, letter] = match ?? [];
  if (owner !== uid || (letter !== "w" && letter !== "g" && letter !== "e")) {
    throw new RuntimeRefusal("invalid", "the log cursor is not of this sandbox");
  }
  const numbers = { lines: Number(lines), pieces: Number(pieces), bytes: Number(bytes) };
  return { at: BigInt(at), base: BigInt(base), ...numbers, state: states[letter] };
}

export function writeCursor(uid: string, cursor: LogCursor): string {
  const { at, base, lines, pieces, bytes, state } = cursor;
  return `${uid}:${at}:${base}:${lines}:${pieces}:${bytes}:${state.charAt(0)}`;
}

/**
 * Counts lines by their second, the newest and the one before it, from the `base` of the cursor that it began
 * at. One for each answer of the server.
 */
export class LogCounter {
  #newest = -1n;
  #inNewest = 0;
  #before = 0;
  #pieces = 0;

  add({ second, piece, last }: LogPiece): void {
    if (second > this.#newest) {
      this.#before = second === this.#newest + 1n ? this.#inNewest : 0;
      this.#inNewest = 0;
      this.#newest = second;
    }
    this.#pieces = last ? 0 : piece + 1;
    if (!last) return;
    if (second === this.#newest) this.#inNewest += 1;
    else if (second === this.#newest - 1n) this.#before += 1;
  }

  /** How much since a second that is the newest or the one before it. */
  seenSince(base: bigint): Pick<LogCursor, "lines" | "pieces"> {
    const lines = base >= this.#newest ? this.#inNewest : this.#before + this.#inNewest;
    return { lines, pieces: this.#pieces };
  }

  place(): Pick<LogCursor, "base" | "lines" | "pieces"> {
    const base = this.#newest > 0n ? this.#newest - 1n : 0n;
    return { base, lines: this.#before + this.#inNewest, pieces: this.#pieces };
  }
}
