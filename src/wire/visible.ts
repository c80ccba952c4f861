/**
 * Text from elsewhere, safe on a terminal or a page: whatever could move the cursor, change colours, answer for the user
 * or reorder what is read is written out (`\x1b`, `\u202e`) instead of done. Tabs stay.
 */
export function visible(text: string): string {
  return text.replaceAll(
    // oxlint-disable-next-line no-control-regex -- Control characters are what this looks for.
    /[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (character) => {
      const code = character.charCodeAt(0);
      const hex = code.toString(16);
      return code < 0x100 ? `\\x${hex.padStart(2, "0")}` : `\\u${hex.padStart(4, "0")}`;
    },
  );
}
