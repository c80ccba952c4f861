import type { CommandView } from "../wire/command.ts";
import type { DoctorReport } from "../wire/doctor.ts";
import { type Page, type Pages, pages } from "./pages.ts";
import type { CallOptions, Transport } from "./transport.ts";

export interface CommandFilter extends CallOptions {
  /** The name of who asked. */
  readonly principal?: string | undefined;
  readonly operation?: string | undefined;
  /** The path of the resource, such as `/v1/jobs/ID`. */
  readonly target?: string | undefined;
  /** Commands of a page. */
  readonly limit?: number | undefined;
}

export type CommandPage = Page<CommandView>;

/** The audit that fits a filter, newest first. */
export type CommandList = Pages<CommandView>;

/** What a server says of itself. `ready` throws an `ApiError` with `unavailable` while it isn't. */
export interface Health {
  readonly status: string;
  readonly loops?: readonly {
    readonly name: string;
    readonly progressing: boolean;
    readonly detail: string;
  }[];
}

export interface ServerCalls {
  /** Who asked for what, when, and what came of it. */
  listCommands(filter?: CommandFilter): CommandList;
  getCommand(id: string, options?: CallOptions): Promise<CommandView>;
  health(options?: CallOptions): Promise<Health>;
  ready(options?: CallOptions): Promise<Health>;
  /** The OpenAPI 3.1 document. */
  openapi(options?: CallOptions): Promise<Readonly<Record<string, unknown>>>;
  /** Whether everything that is always true of the store is true. Served by development stores alone. */
  doctor(options?: CallOptions & { readonly tenant?: string | undefined }): Promise<DoctorReport>;
}

export function serverCalls(transport: Transport): ServerCalls {
  const get = async <T>(path: string, { signal }: CallOptions = {}) =>
    (await transport.json<T>({ path, signal })).value;
  return {
    listCommands: (filter = {}) => listCommands(transport, filter),
    getCommand: (id, options) => get(`/v1/commands/${encodeURIComponent(id)}`, options),
    health: (options) => get("/healthz", options),
    ready: (options) => get("/readyz", options),
    openapi: (options) => get("/openapi.json", options),
    doctor: async ({ tenant, signal } = {}) =>
      (await transport.json<DoctorReport>({ path: "/v1/doctor", query: { tenant }, signal })).value,
  };
}

function listCommands(transport: Transport, filter: CommandFilter): CommandList {
  const { signal, principal, operation, target, limit } = filter;
  return pages(transport, { path: "/v1/commands", query: { principal, operation, target, limit }, signal });
}
