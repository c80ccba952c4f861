import type { ServerResponse } from "node:http";

/** Thrown inside the double; each shape is one that the service or its daemon really has. */
export class Refused extends Error {
  readonly status: number;
  readonly body: string;
  readonly type: string;

  constructor(status: number, body: object | string) {
    super(typeof body === "string" ? body : JSON.stringify(body));
    this.status = status;
    this.body = this.message;
    this.type = typeof body === "string" ? "text/plain" : "application/json";
  }
}

export const serviceError = (status: number, code: string, message: string): Refused =>
  new Refused(status, { code, message });

/** FastAPI's own, for what doesn't fit the schema; the specification says 400. */
export const schemaError = (field: string, message: string): Refused =>
  new Refused(422, { detail: [{ type: "value_error", loc: ["body", field], msg: message, input: null }] });

export const daemonError = (status: number, error: string): Refused => new Refused(status, { error });

export const notFound = (id: string): Refused =>
  serviceError(404, "KUBERNETES::SANDBOX_NOT_FOUND", `Sandbox ${id} not found`);

export function sendJson(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}

export function sendRefusal(response: ServerResponse, { status, type, body }: Refused, after?: number): void {
  const headers = after === undefined ? {} : { "retry-after": String(after) };
  response.writeHead(status, { "content-type": type, ...headers }).end(body);
}
