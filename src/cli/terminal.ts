import pc from "picocolors";
import { exitCodes } from "../wire/exit-codes.ts";
import { visible } from "./visible.ts";

export type Colors = ReturnType<typeof pc.createColors>;

/** Where a command writes, and what it may do there. */
export interface Terminal {
  /** Resolves when there is room for more, so that a slow reader slows the command and fills no memory. */
  out(text: string): Promise<void>;
  err(text: string): Promise<void>;
  /** Standard output is a terminal on which lines can be redrawn. */
  readonly live: boolean;
  readonly columns: number;
  readonly rows: number;
  readonly colors: Colors;
  readonly errorColors: Colors;
  /** Text from elsewhere: made visible on a terminal, as it is in a file or pipe. */
  foreign(text: string): string;
}

export function processTerminal(settings: {
  readonly noColor: boolean;
  readonly terminal: string | null;
}): Terminal {
  const { stdout, stderr } = process;
  // Whoever reads has seen enough: that is no fault, and there is nobody left to tell.
  for (const stream of [stdout, stderr]) {
    stream.on("error", (error: NodeJS.ErrnoException) => {
      process.exit(error.code === "EPIPE" ? exitCodes.broken_pipe : exitCodes.failure);
    });
  }
  const plain = settings.noColor || settings.terminal === "dumb";
  return {
    out: (text) => write(stdout, text),
    err: (text) => write(stderr, text),
    live: stdout.isTTY && settings.terminal !== "dumb",
    get columns() {
      return stdout.columns > 0 ? stdout.columns : 80;
    },
    get rows() {
      return stdout.rows > 0 ? stdout.rows : 24;
    },
    colors: pc.createColors(stdout.isTTY && !plain),
    errorColors: pc.createColors(stderr.isTTY && !plain),
    foreign: stdout.isTTY ? visible : (text) => text,
  };
}

function write(stream: NodeJS.WriteStream, text: string): Promise<void> {
  return new Promise((resolve) => {
    if (stream.write(text)) resolve();
    else stream.once("drain", () => resolve());
  });
}
