import Table from "cli-table3";
import { visible } from "./visible.ts";

const noBorder = {
  top: "",
  "top-mid": "",
  "top-left": "",
  "top-right": "",
  bottom: "",
  "bottom-mid": "",
  "bottom-left": "",
  "bottom-right": "",
  left: "",
  "left-mid": "",
  mid: "",
  "mid-mid": "",
  right: "",
  "right-mid": "",
  middle: "",
};

/** The one style of tables: a heading, columns two spaces apart, no lines. Cells are made visible text. */
export function tableText(
  heading: readonly string[],
  rows: readonly (readonly string[])[],
  colorOf: (cell: string, column: number) => string = (cell) => cell,
): string {
  const table = new Table({
    chars: noBorder,
    style: { "padding-left": 0, "padding-right": 2, head: [], border: [], compact: true },
  });
  table.push([...heading], ...rows.map((row) => row.map((cell, column) => colorOf(visible(cell), column))));
  return `${table
    .toString()
    .split("\n")
    .map((line) => line.trimEnd())
    .join("\n")}\n`;
}
