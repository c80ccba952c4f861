/** How this very command line is called: in a clone it is not installed, and `npx` finds it. */
export const programName = import.meta.filename.endsWith(".ts") ? "npx holdfast" : "holdfast";

/** A text that names commands as `holdfast …`, with the name that works here. */
export function spelled(text: string): string {
  return text.replaceAll("`holdfast ", `\`${programName} `);
}
