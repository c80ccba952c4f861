import { STATUS_CODES } from "node:http";
import { problemType } from "./problem.ts";

/** As much of an OpenAPI document as is looked at here. */
interface Operation {
  readonly security?: readonly unknown[];
  readonly parameters?: readonly object[];
  readonly responses?: Readonly<Record<string, { readonly description?: string }>>;
}
interface Document {
  readonly paths?: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components?: Readonly<Record<string, unknown>>;
}

const parameter = (name: string, description: string, schema: object, required = false) => ({
  name,
  in: "header",
  description,
  required,
  schema,
});

const idempotencyKey = parameter(
  "Idempotency-Key",
  "The same request with the same key again gives the stored answer and does nothing",
  { type: "string", pattern: "^[\\x21-\\x7e]{1,255}$" },
);
const ifMatch = (required: boolean) =>
  parameter("If-Match", "ETags of which one has to be the resource's", { type: "string" }, required);
const ifNoneMatch = parameter("If-None-Match", "`*`: only when there is none yet", { const: "*" });

const common = {
  RequestId: parameter("X-Request-Id", "Comes back, and stands in the audit", {
    type: "string",
    pattern: "^[A-Za-z0-9._:-]{1,128}$",
  }),
  TraceParent: parameter("traceparent", "W3C trace context, carried on to what the command starts", {
    type: "string",
  }),
} as const;
const commonReferences = Object.keys(common).map((name) => ({ $ref: `#/components/parameters/${name}` }));

/**
 * What every route has in common is written in here and not at each route: headers, the answer to everything
 * else. Schemas with a title become components, so that generated clients have names for them.
 */
export function finishDocument(raw: object): object {
  const components: Record<string, unknown> = {};
  const { paths = {}, ...rest } = raw as Document;
  const finished = Object.fromEntries(
    Object.entries(paths).map(([path, methods]) => [
      path,
      Object.fromEntries(
        Object.entries(methods).map(([method, operation]) => [method, finishOperation(method, operation)]),
      ),
    ]),
  );
  const named = hoist(finished, components);
  const schemas = Object.fromEntries(Object.entries(components).toSorted(([a], [b]) => (a < b ? -1 : 1)));
  return { ...rest, components: { ...rest.components, schemas, parameters: common }, paths: named };
}

function finishOperation(method: string, operation: Operation): Operation {
  const { parameters = [], responses = {}, security } = operation;
  const open = security !== undefined;
  const headers = method === "get" ? [] : [idempotencyKey];
  if ("412" in responses) headers.push(ifMatch("428" in responses));
  if ("201" in responses) headers.push(ifNoneMatch);
  const problem = { description: "Any other problem", content: problemContent };
  return {
    ...operation,
    parameters: [...parameters, ...headers, ...commonReferences],
    responses: {
      ...Object.fromEntries(
        Object.entries(responses).map(([status, one]) => [status, described(status, one)]),
      ),
      ...(open ? {} : { default: problem }),
    },
  };
}

const problemContent = { [problemType]: { schema: { $ref: "#/components/schemas/ProblemDocument" } } };

function described<Response extends { readonly description?: string }>(
  status: string,
  response: Response,
): Response {
  const vague = response.description === "Default Response" || response.description === "A problem";
  return vague ? { ...response, description: STATUS_CODES[status] ?? "An answer" } : response;
}

/** A copy in which each object schema with a title that can be a name is a reference to its component. */
function hoist(value: unknown, components: Record<string, unknown>): unknown {
  if (Array.isArray(value)) return value.map((item) => hoist(item, components));
  if (typeof value !== "object" || value === null) return value;
  const copy = Object.fromEntries(
    Object.entries(value).map(([name, member]) => [name, hoist(member, components)]),
  );
  const title: unknown = copy["title"];
  if (typeof title !== "string" || !/^[A-Z][A-Za-z0-9]+$/.test(title) || !isSchema(copy)) return copy;
  const known = components[title];
  if (known !== undefined && JSON.stringify(known) !== JSON.stringify(copy)) {
    throw new Error(`two schemas have the title ${title}`);
  }
  components[title] = copy;
  return { $ref: `#/components/schemas/${title}` };
}

const isSchema = (value: object) => "type" in value || "anyOf" in value;
