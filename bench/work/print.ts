import { loadavg } from "node:os";

export const say = (line: string): void => console.log(line);

/** A row of a Markdown table; numbers without their fraction. */
export const row = (cells: readonly (string | number)[]): void =>
  say(`| ${cells.map((cell) => (typeof cell === "number" ? Math.round(cell) : cell)).join(" | ")} |`);

export const median = (numbers: readonly number[]): number =>
  numbers.toSorted((a, b) => a - b)[numbers.length >> 1] ?? 0;

/** The average load of the last minute. */
export const load = (): string => loadavg()[0]?.toFixed(1) ?? "unknown";

/** A budget, and whether what was measured is within it. */
export function budgeted(measured: number, budget: number, bound: "most" | "least"): string {
  const met = bound === "most" ? measured <= budget : measured >= budget;
  return `${budget}, ${met ? "met" : "**missed**"}`;
}
