import type { CommandView } from "../wire/command.ts";
import type { DoctorReport } from "../wire/doctor.ts";
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

export interface CommandPage {
  readonly items: readonly CommandView[];
  readonly next_page_token: string | null;
}

/** The audit that fits a filter, newest first: all of it by iterating, or page by page. */
export interface CommandList extends AsyncIterable<CommandView> {
  page(token?: string): Promise<CommandPage>;
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
  const page = async (token?: string): Promise<CommandPage> => {
    const query = { principal, operation, target, limit, page_token: token };
    return (await transport.json<CommandPage>({ path: "/v1/commands", query, signal })).value;
  };
  return {
    page,
    async *[Symbol.asyncIterator]() {
      let token: string | undefined;
      do {
        const { items, next_page_token } = await page(token);
        yield* items;
        token = next_page_token ?? undefined;
      } while (token !== undefined);
    },
  };
}
