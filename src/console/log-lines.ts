import type { LogLine } from "../client/client.ts";
import { plain, type Span, type Style, spansOf, textOf } from "./ansi.ts";

/** As many lines as a page keeps; older ones give way and stay on the server. */
export const linesMax = 100_000;

export interface ShownLine {
  /** Counts from the first line that was ever read. */
  readonly number: number;
  readonly line: LogLine;
  /** What the line begins with: a colour goes on where the line before it left off. */
  readonly style: Style;
  /** For the search: as it is shown. */
  readonly text: string;
}

/** The lines of an output as they come, bounded, and what a search finds in them. */
export class LogLines {
  #lines: ShownLine[] = [];
  #total = 0;
  readonly #styles = new Map<string, Style>();

  get total(): number {
    return this.#total;
  }

  get length(): number {
    return this.#lines.length;
  }

  /** Read before the oldest that is still here. */
  get dropped(): number {
    return this.#total - this.#lines.length;
  }

  add(lines: readonly LogLine[]): void {
    for (const line of lines) {
      const source = `${line.attempt} ${line.phase} ${line.stream}`;
      const style = this.#styles.get(source) ?? plain;
      const { spans, end } = spansOf(line.text, style);
      this.#styles.set(source, end);
      this.#total += 1;
      this.#lines.push({ number: this.#total, line, style, text: textOf(spans) });
    }
    // Seldom, because it moves all of them.
    if (this.#lines.length > linesMax * 1.1) this.#lines = this.#lines.slice(-linesMax);
  }

  /** Those that contain the words, whatever their case; all without any. */
  find(words: string): readonly ShownLine[] {
    if (words === "") return this.#lines;
    const wanted = words.toLowerCase();
    return this.#lines.filter(({ text }) => text.toLowerCase().includes(wanted));
  }
}

export interface MarkedSpan extends Span {
  readonly found: boolean;
}

/** The spans of a line, cut where what was searched for begins and ends. */
export function marked({ line, style }: Pick<ShownLine, "line" | "style">, words: string): MarkedSpan[] {
  const { spans } = spansOf(line.text, style);
  if (words === "") return spans.map((span) => ({ ...span, found: false }));
  const places = placesOf(textOf(spans).toLowerCase(), words.toLowerCase());
  let at = 0;
  return spans.flatMap((span) => {
    const begin = at;
    at += span.text.length;
    return cut(span, begin, places);
  });
}

function placesOf(text: string, words: string): (readonly [number, number])[] {
  const places: [number, number][] = [];
  for (let at = text.indexOf(words); at !== -1; at = text.indexOf(words, at + words.length)) {
    places.push([at, at + words.length]);
  }
  return places;
}

function cut(span: Span, begin: number, places: readonly (readonly [number, number])[]): MarkedSpan[] {
  const end = begin + span.text.length;
  const edges = new Set([begin, end]);
  for (const edge of places.flat()) if (edge > begin && edge < end) edges.add(edge);
  const sorted = [...edges].sort((a, b) => a - b);
  return sorted.slice(0, -1).map((from, index) => {
    const until = sorted[index + 1] ?? end;
    const found = places.some(([start, stop]) => from >= start && until <= stop);
    return { text: span.text.slice(from - begin, until - begin), style: span.style, found };
  });
}
