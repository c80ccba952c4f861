import { Type } from "typebox";
import { HoldfastError } from "../core/errors.ts";

/** One parameter, or the same one several times. */
export const oneOrMore = <T extends Type.TSchema>(schema: T, maxItems: number) =>
  Type.Optional(Type.Union([schema, Type.Array(schema, { maxItems })]));

const Label = Type.String({
  minLength: 2,
  maxLength: 320,
  description: "a label, NAME=VALUE",
  pattern: "^[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?=[^\\u0000]*$",
});

/** `label=NAME=VALUE` in a list's query: all of these have to be there. */
export const LabelQuery = oneOrMore(Label, 16);

export function labelsOf(query: string | readonly string[] | undefined): Readonly<Record<string, string>> {
  const labels = [query ?? []].flat().map((text): [string, string] => {
    const at = text.indexOf("=");
    return [text.slice(0, at), text.slice(at + 1)];
  });
  const names = new Set(labels.map(([name]) => name));
  if (names.size < labels.length) {
    throw new HoldfastError("invalid_request", "a label can have only one value", {
      fields: [{ pointer: "/label", message: "names one label twice" }],
    });
  }
  return Object.fromEntries(labels);
}
