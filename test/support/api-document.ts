/** The parts of the OpenAPI document that tests go through. */
export interface ApiOperation {
  readonly method: string;
  readonly path: string;
  readonly operationId: string;
  readonly secured: boolean;
  readonly parameters: readonly {
    readonly name: string;
    readonly in: "path" | "query";
    readonly schema: object;
  }[];
  readonly body: object | null;
  readonly statuses: readonly string[];
}

interface RawOperation {
  readonly operationId?: string;
  readonly security?: readonly unknown[];
  readonly parameters?: ApiOperation["parameters"];
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: object }>> };
  readonly responses?: Readonly<Record<string, unknown>>;
}

export function operationsOf(document: object): ApiOperation[] {
  const { paths } = document as { readonly paths: Readonly<Record<string, Record<string, RawOperation>>> };
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      method: method.toUpperCase(),
      path,
      operationId: operation.operationId ?? "",
      secured: operation.security === undefined,
      parameters: operation.parameters ?? [],
      body: operation.requestBody?.content["application/json"]?.schema ?? null,
      statuses: Object.keys(operation.responses ?? {}),
    })),
  );
}
