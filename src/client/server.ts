import type { CommandView } from "../wire/command.ts";
import type { DoctorReport } from "../wire/doctor.ts";
import type { LeaseView, OverviewView, SystemView } from "../wire/overview.ts";
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

export interface LeaseFilter extends CallOptions {
  /** Such as `session` or `execution`. */
  readonly kind?: string | undefined;
  readonly resource?: string | undefined;
}

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
  /** The tenant at a glance. */
  getOverview(options?: CallOptions): Promise<OverviewView>;
  /** Who attends to what, the longest due first; at most some hundred of them. */
  listLeases(filter?: LeaseFilter): Promise<readonly LeaseView[]>;
  /** The installation: its schema, and the processes that use it. For operators. */
  getSystem(options?: CallOptions): Promise<SystemView>;
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
    getOverview: (options) => get("/v1/overview", options),
    listLeases: async ({ kind, resource, signal } = {}) => {
      const request = { path: "/v1/leases", query: { kind, resource }, signal };
      return (await transport.json<{ readonly items: readonly LeaseView[] }>(request)).value.items;
    },
    getSystem: (options) => get("/v1/system", options),
    doctor: async ({ tenant, signal } = {}) =>
      (await transport.json<DoctorReport>({ path: "/v1/doctor", query: { tenant }, signal })).value,
  };
}

function listCommands(transport: Transport, filter: CommandFilter): CommandList {
  const { signal, principal, operation, target, limit } = filter;
  return pages(transport, { path: "/v1/commands", query: { principal, operation, target, limit }, signal });
}
