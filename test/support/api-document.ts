/** The parts of the OpenAPI document that tests go through. */
export interface ApiOperation {
  readonly method: string;
  readonly path: string;
  readonly operationId: string;
  readonly secured: boolean;
  readonly parameters: readonly {
    readonly name: string;
    readonly in: "path" | "query";
    readonly required?: boolean;
    readonly schema: object;
  }[];
  readonly body: object | null;
  readonly statuses: readonly string[];
  /** Of the answer's JSON; null when there is none of that status. */
  readonly answer: (status: number) => object | null;
}

interface Content {
  readonly content?: Readonly<Record<string, { readonly schema: object }>>;
}
interface RawOperation {
  readonly operationId?: string;
  readonly security?: readonly unknown[];
  readonly parameters?: readonly { readonly in: string }[];
  readonly requestBody?: Content;
  readonly responses?: Readonly<Record<string, Content>>;
}

export function operationsOf(document: object): ApiOperation[] {
  const { paths } = resolved(document, document) as {
    readonly paths: Readonly<Record<string, Record<string, RawOperation>>>;
  };
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      method: method.toUpperCase(),
      path,
      operationId: operation.operationId ?? "",
      secured: operation.security === undefined,
      parameters: (operation.parameters ?? []).filter(
        (parameter): parameter is ApiOperation["parameters"][number] => parameter.in !== "header",
      ),
      body: operation.requestBody?.content?.["application/json"]?.schema ?? null,
      statuses: Object.keys(operation.responses ?? {}),
      answer: (status) => {
        const content = operation.responses?.[String(status)]?.content ?? {};
        return (content["application/json"] ?? content["application/problem+json"])?.schema ?? null;
      },
    })),
  );
}

/** A path with its parameters filled in. */
export function pathOf(operation: ApiOperation, values: Readonly<Record<string, string>>): string {
  return operation.path.replace(/\{(\w+)\}/g, (_whole, name: string) =>
    encodeURIComponent((values[name] ?? "none").toWellFormed()),
  );
}

/** The same with every reference replaced by what it names. No schema contains itself. */
function resolved(value: unknown, document: object): unknown {
  if (Array.isArray(value)) return value.map((item) => resolved(item, document));
  if (typeof value !== "object" || value === null) return value;
  if ("$ref" in value && typeof value.$ref === "string") {
    const steps = value.$ref.replace("#/", "").split("/");
    const target = steps.reduce<unknown>((at, step) => (at as Record<string, unknown>)[step], document);
    return resolved(target, document);
  }
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [name, resolved(member, document)]),
  );
}
