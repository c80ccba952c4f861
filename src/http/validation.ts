import type { TSchema } from "typebox";
import { Compile } from "typebox/compile";
import { HoldfastError } from "../core/errors.ts";
import { schemaProblems } from "../wire/schema-problems.ts";

const problemsMax = 20;

/** Checks and changes nothing: no coercion, no defaults, no unknown member quietly dropped. */
export function compileSchema({
  schema,
  httpPart,
}: {
  readonly schema: unknown;
  readonly httpPart?: string | undefined;
}): (value: unknown) => { readonly error: HoldfastError } | { readonly value: unknown } {
  const shape = schema as TSchema;
  const validator = Compile(shape);
  return (value) => (validator.Check(value) ? { value } : { error: refusal(shape, value, httpPart) });
}

function refusal(schema: TSchema, value: unknown, part: string | undefined): HoldfastError {
  // No resource has such an id: the same answer as for an id that nobody has.
  if (part === "params") return new HoldfastError("not_found", "there is no such resource");
  const problems = schemaProblems(schema, value).slice(0, problemsMax);
  const fields = problems.map(({ pointer, message }) => ({ pointer, message }));
  const [first] = fields;
  const where = part === "querystring" ? "the query" : "the body";
  return new HoldfastError("invalid_request", `${where}: ${describe(first)}`, { fields });
}

function describe(field: { readonly pointer: string; readonly message: string } | undefined): string {
  if (field === undefined) return "does not fit its schema";
  return field.pointer === "" ? field.message : `${field.pointer} ${field.message}`;
}
