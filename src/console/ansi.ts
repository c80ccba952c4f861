import { visible } from "../wire/visible.ts";

/** Terminal colours of a line, as classes: nothing else that a terminal would do is done. */
export interface Style {
  /** 0 to 15; null is the page's own. */
  readonly color: number | null;
  readonly bold: boolean;
  readonly dim: boolean;
  readonly italic: boolean;
  readonly underline: boolean;
}

export interface Span {
  readonly text: string;
  readonly style: Style;
}

export const plain: Style = { color: null, bold: false, dim: false, italic: false, underline: false };

// CSI sequences, OSC and the other strings with their ends, and two-character escapes. Only SGR (`m`) means anything here.
const sequence =
  // oxlint-disable-next-line no-control-regex -- Escape sequences are what this looks for.
  /\u001b\[([0-9;:?]*)[ -/]*([@-~])|\u001b[\]PX^_][^\u0007\u001b]*(?:\u0007|\u001b\\|$)|\u001b[ -/]*[0-~]|\u001b$/g;

/** The parts of a line, with the style that the next line begins with. */
export function spansOf(line: string, begin: Style = plain): { spans: Span[]; end: Style } {
  if (!line.includes("\u001b")) {
    return { spans: line === "" ? [] : [{ text: visible(line), style: begin }], end: begin };
  }
  const spans: Span[] = [];
  let style = begin;
  let from = 0;
  const push = (text: string) => {
    if (text !== "") spans.push({ text: visible(text), style });
  };
  for (const found of line.matchAll(sequence)) {
    push(line.slice(from, found.index));
    from = found.index + found[0].length;
    if (found[2] === "m") style = styled(style, found[1] ?? "");
  }
  push(line.slice(from));
  return { spans, end: style };
}

/** What is searched: the text as it is shown. */
export const textOf = (spans: readonly Span[]): string => spans.map(({ text }) => text).join("");

function styled(before: Style, parameters: string): Style {
  let style = before;
  const codes = parameters.split(/[;:]/).map((code) => (code === "" ? 0 : Number(code)));
  for (let index = 0; index < codes.length; index += 1) {
    const code = codes[index] ?? 0;
    if (code === 38 || code === 48) {
      const [color, used] = extended(codes.slice(index + 1));
      if (code === 38) style = { ...style, color };
      index += used;
    } else {
      style = simple(style, code);
    }
  }
  return style;
}

function simple(style: Style, code: number): Style {
  if (code === 0) return plain;
  if (code === 1) return { ...style, bold: true };
  if (code === 2) return { ...style, dim: true };
  if (code === 3) return { ...style, italic: true };
  if (code === 4) return { ...style, underline: true };
  if (code === 22) return { ...style, bold: false, dim: false };
  if (code === 23) return { ...style, italic: false };
  if (code === 24) return { ...style, underline: false };
  if (code >= 30 && code <= 37) return { ...style, color: code - 30 };
  if (code >= 90 && code <= 97) return { ...style, color: code - 82 };
  return code === 39 ? { ...style, color: null } : style;
}

/** A colour of 256, or of all: the nearest of sixteen that can be read on both grounds. And how many numbers said it. */
function extended(codes: readonly number[]): readonly [number | null, number] {
  const [kind, first = 0, second = 0, third = 0] = codes;
  if (kind === 5) return [indexed(first), 2];
  if (kind === 2) return [nearest(first, second, third), 4];
  return [null, codes.length];
}

function indexed(index: number): number | null {
  if (index < 16) return index;
  if (index > 231) return index < 244 ? 8 : 7;
  const level = (value: number) => (value === 0 ? 0 : 55 + 40 * value);
  const cube = index - 16;
  return nearest(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6));
}

/** Bits for red, green and blue, as the sixteen are numbered; bright when any of them is strong. */
function nearest(red: number, green: number, blue: number): number {
  const most = Math.max(red, green, blue);
  const bit = (value: number, weight: number) => (value > most * 0.6 && value > 50 ? weight : 0);
  return bit(red, 1) + bit(green, 2) + bit(blue, 4) + (most > 200 ? 8 : 0);
}
