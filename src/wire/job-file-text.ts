import type { FieldError } from "./holdfast-error.ts";

type Text =
  | { readonly ok: true; readonly text: string }
  | { readonly ok: false; readonly problem: FieldError };

/** The text of a file, without a byte order mark; or where it stops being text. */
export function fileText(content: string | Uint8Array): Text {
  if (typeof content === "string") return checkedText(content.replace(/^\uFEFF/, ""));
  if ((content[0] === 0xff && content[1] === 0xfe) || (content[0] === 0xfe && content[1] === 0xff)) {
    return refused(1, 1, "the file is UTF-16; save it as UTF-8");
  }
  try {
    return checkedText(new TextDecoder("utf-8", { fatal: true }).decode(content));
  } catch {
    return invalidByte(content);
  }
}

function checkedText(text: string): Text {
  if (text.trim() === "") return refused(1, 1, "the file is empty; it begins with `apiVersion: holdfast/v1`");
  // oxlint-disable-next-line no-control-regex -- Control characters are what this looks for.
  const control = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]|\p{Surrogate}/u.exec(text);
  if (control === null) return { ok: true, text };
  const before = text.slice(0, control.index).split("\n");
  const code = (control[0].codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
  return refused(
    before.length,
    (before.at(-1) ?? "").length + 1,
    `the character U+${code} is not allowed here`,
  );
}

/** A line feed is never part of a longer sequence, so that the line to blame can be found by itself. */
function invalidByte(bytes: Uint8Array): Text {
  let line = 1;
  let start = 0;
  for (;;) {
    const end = bytes.indexOf(0x0a, start);
    const part = bytes.subarray(start, end === -1 ? bytes.length : end);
    const column = validPrefix(part);
    if (column !== undefined || end === -1) {
      return refused(line, (column ?? 0) + 1, "the file is not valid UTF-8 here; save it as UTF-8");
    }
    line += 1;
    start = end + 1;
  }
}

/** How many characters of a line are valid before its first invalid byte; nothing when all of it is. */
function validPrefix(line: Uint8Array): number | undefined {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let characters = 0;
  try {
    for (const byte of line) characters += decoder.decode(Uint8Array.of(byte), { stream: true }).length;
    decoder.decode();
    return undefined;
  } catch {
    return characters;
  }
}

function refused(line: number, column: number, message: string): Text {
  return { ok: false, problem: { pointer: "", message, line, column } };
}
