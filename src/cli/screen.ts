import type { Terminal } from "./terminal.ts";

/** Lines that stay at the bottom of a terminal while others scroll by above them. */
export interface Screen {
  /** A whole line above the status. */
  print(line: string): Promise<void>;
  status(lines: readonly string[]): Promise<void>;
  /** Take the status away; what was printed stays. */
  clear(): Promise<void>;
}

const redrawMs = 60;

/** Draws at most once in `redrawMs`, so that a chatty job costs no more than a quiet one. */
export function createScreen(terminal: Terminal): Screen {
  let drawn = 0;
  let status: readonly string[] = [];
  let printed: string[] = [];
  let timer: NodeJS.Timeout | undefined;
  let writing: Promise<void> = Promise.resolve();

  const draw = () => {
    clearTimeout(timer);
    timer = undefined;
    const up = drawn === 0 ? "" : `\x1b[${drawn}A`;
    // A status that does not fit would scroll away and be drawn again and again.
    const shown = status.slice(0, Math.max(1, terminal.rows - 2));
    drawn = shown.length;
    const text = [...printed, ...shown].map((line) => `${line}\n`).join("");
    printed = [];
    writing = writing.then(() => terminal.out(`${up}\r\x1b[0J${text}`));
  };
  const soon = () => {
    timer ??= setTimeout(draw, redrawMs);
  };

  return {
    print(line) {
      printed.push(line);
      if (printed.length >= 500) draw();
      else soon();
      return writing;
    },
    status(lines) {
      status = lines;
      soon();
      return writing;
    },
    clear() {
      status = [];
      draw();
      return writing;
    },
  };
}

/** Cut to the terminal's width. From Hangul on a character may take two cells, so it is counted as two. */
export function fitted(text: string, columns: number): string {
  let width = 0;
  let kept = "";
  for (const character of text) {
    width += character >= "\u1100" ? 2 : 1;
    if (width >= columns) return `${kept}…`;
    kept += character;
  }
  return kept;
}
