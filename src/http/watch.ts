import { type Static, Type } from "typebox";
import type { Change } from "../core/change.store.ts";
import { readChanges } from "../core/change.store.ts";
import { type ChangeFilter, type Cursor, decodeCursor, encodeCursor, hasLabels } from "../core/cursor.ts";
import { HoldfastError, isHoldfastError } from "../core/errors.ts";
import type { TenantId } from "../core/ids.ts";
import { type Transaction, view } from "../core/postgres/transition.ts";
import { formatInstant } from "../core/time.ts";
import { type ChangeEvent, Uuid } from "../wire/job.ts";
import type { Feeds } from "./feed.ts";
import { type Gateway, type GatewayServer, principalOf } from "./gateway.ts";
import { LabelQuery, labelsOf } from "./label-query.ts";
import { problems } from "./openapi.ts";
import { heartbeat, retryAfter, serverSentEvent } from "./sse.ts";
import { type LiveResponse, openStream } from "./stream.ts";
import { readHead } from "./watch.sql.ts";

const Kind = Type.String({ minLength: 1, maxLength: 63, pattern: "^[a-z][a-z_]*$" });

export const WatchQuery = Type.Object(
  {
    /** A cursor of this tenant and filter, or of a list. Left out, the stream begins now. */
    after: Type.Optional(Type.String({ minLength: 1, maxLength: 255 })),
    kind: Type.Optional(Type.Union([Kind, Type.Array(Kind, { maxItems: 16 })])),
    job: Type.Optional(Uuid),
    session: Type.Optional(Uuid),
    label: LabelQuery,
  },
  { additionalProperties: false },
);

const everything: ChangeFilter = { kinds: [], root: null };

type Standing = Omit<Cursor, "position"> & { readonly floor: bigint; readonly head: bigint };

/** What a narrowed scope has to name, before the query is checked. */
function rootOf({ query }: { readonly query: unknown }): unknown {
  const { job, session } = query as { readonly job?: unknown; readonly session?: unknown };
  return job ?? session;
}

/** In the snapshot of `tx`. */
async function standing(tx: Transaction, tenant: TenantId, filter: ChangeFilter): Promise<Standing> {
  const { incarnation_id: incarnation, position: head, floor } = await tx.run(readHead, {});
  return { incarnation, tenant, filter, floor, head };
}

/** For a list read in the same view: watching from it misses nothing, under any filter (S14). */
export async function listCursor(tx: Transaction, tenant: TenantId): Promise<string> {
  const { incarnation, head } = await standing(tx, tenant, everything);
  return encodeCursor({ incarnation, tenant, filter: everything, position: head });
}

/** Who has seen everything up to a position has seen what a filter leaves of it. */
function positionIn(cursor: string, here: Standing): bigint {
  try {
    return decodeCursor(cursor, here);
  } catch (error) {
    if (!isHoldfastError(error, "invalid_cursor")) throw error;
    return decodeCursor(cursor, { ...here, filter: everything });
  }
}

export function watchRoutes(server: GatewayServer, gateway: Gateway & { readonly feeds: Feeds }): void {
  server.get(
    "/v1/watch",
    {
      exposeHeadRoute: false,
      config: { scope: "watch:read", resource: rootOf },
      schema: {
        operationId: "watch",
        summary: "Changes as they happen, as server-sent events, resumable by cursor",
        tags: ["watch"],
        querystring: WatchQuery,
        response: {
          200: {
            description: "An event for each change: `id` is its cursor, `data` a ChangeEvent",
            content: { "text/event-stream": { schema: Type.String() } },
          },
          ...problems(400, 401, 403, 410, 429),
        },
      },
    },
    async (request, reply) => {
      const { tenant } = principalOf(request);
      const filter = filterOf(request.query);
      const here = await view(gateway.db, { role: "gateway", tenant, name: "watch" }, (tx) =>
        standing(tx, tenant, filter),
      );
      const lastEventId = request.headers["last-event-id"];
      const after = typeof lastEventId === "string" && lastEventId !== "" ? lastEventId : request.query.after;
      const position = after === undefined ? here.head : positionIn(after, here);
      let quiet = () => heartbeat;
      const live = openStream(gateway, request, reply, {
        contentType: "text/event-stream; charset=utf-8",
        onQuiet: () => quiet(),
        onRefused: (problem) => serverSentEvent({ id: null, event: "error", data: problem }),
      });
      const stream = new WatchStream(gateway, live, here, position);
      quiet = () => stream.onQuiet();
      await stream.run().catch((error: unknown) => live.fail(error));
      live.end();
      return reply;
    },
  );
}

function filterOf({ kind, job, session, label }: Static<typeof WatchQuery>): ChangeFilter {
  if (job !== undefined && session !== undefined) {
    throw new HoldfastError("invalid_request", "nothing belongs to a job and to a session");
  }
  const kinds = kind === undefined ? [] : [kind].flat();
  return { kinds, root: job ?? session ?? null, labels: labelsOf(label) };
}

/** Catches up from the log, then goes on with the tenant's feed. */
class WatchStream {
  readonly #gateway: Gateway & { readonly feeds: Feeds };
  readonly #live: LiveResponse;
  readonly #here: Standing;
  /** Everything up to here was written. */
  #position: bigint;
  /** The last one that the client was told. */
  #told: bigint;
  #settled: () => bigint | null = () => null;
  /** Equal for streams whose events are. */
  readonly #sameAs: string;

  constructor(
    gateway: Gateway & { readonly feeds: Feeds },
    live: LiveResponse,
    here: Standing,
    position: bigint,
  ) {
    this.#gateway = gateway;
    this.#live = live;
    this.#here = here;
    this.#sameAs = encodeCursor({ ...here, position: 0n });
    this.#position = this.#told = position;
  }

  async run(): Promise<void> {
    await this.#live.write(retryAfter(this.#gateway.limits.reconnectMs) + this.#bookmark());
    let joined = false;
    const feed = this.#gateway.feeds.join(this.#here.tenant, (changes, upto) => {
      if (joined) this.#pass(changes, upto);
    });
    try {
      while (!this.#live.signal.aborted && this.#position < feed.position) await this.#catchUp(feed.position);
      joined = true;
      this.#settled = () => feed.settled();
      await closed(this.#live.signal);
    } finally {
      feed.leave();
    }
  }

  async #catchUp(upto: bigint): Promise<void> {
    const limit = this.#gateway.limits.watchBatch;
    const { tenant, filter } = this.#here;
    const changes = await readChanges(this.#gateway.db, tenant, {
      ...filter,
      after: this.#position,
      upto,
      limit,
    });
    for (const change of changes) {
      if (this.#live.signal.aborted) return;
      await this.#live.write(this.#event(change));
      this.#position = this.#told = change.position;
    }
    if (changes.length < limit) this.#position = upto;
  }

  #pass(changes: readonly Change[], upto: bigint): void {
    const { filter } = this.#here;
    const { kinds, root } = filter;
    for (const change of changes) {
      if (change.position <= this.#position) continue;
      if (kinds.length > 0 && !kinds.includes(change.kind)) continue;
      if (root !== null && change.root !== root) continue;
      if (hasLabels(filter) && !carries(change.body, filter.labels)) continue;
      this.#live.push(this.#event(change));
      this.#told = change.position;
    }
    if (upto > this.#position) this.#position = upto;
  }

  /** A bookmark when the cursor has moved without an event for this stream, else a comment. */
  onQuiet(): string {
    const settled = this.#settled();
    if (settled !== null && settled > this.#position) this.#position = settled;
    if (this.#position <= this.#told) return heartbeat;
    this.#told = this.#position;
    return this.#bookmark();
  }

  #bookmark(): string {
    const cursor = this.#cursor(this.#position);
    return serverSentEvent({ id: cursor, event: "bookmark", data: { cursor } });
  }

  /** Streams with the same filter send the same bytes: written once for all of them. */
  #event(change: Change): string {
    const known = written.get(change) ?? new Map<string, string>();
    written.set(change, known);
    const event = known.get(this.#sameAs) ?? this.#write(change);
    known.set(this.#sameAs, event);
    return event;
  }

  #write(change: Change): string {
    const cursor = this.#cursor(change.position);
    const data: ChangeEvent = {
      cursor,
      kind: change.kind,
      id: change.resource,
      root_id: change.root,
      resource_version: String(change.resourceVersion),
      operation: change.operation,
      at: formatInstant(change.at),
      traceparent: change.traceparent,
      body: change.body,
    };
    return serverSentEvent({ id: cursor, event: change.operation, data });
  }

  #cursor(position: bigint): string {
    const { incarnation, tenant, filter } = this.#here;
    return encodeCursor({ incarnation, tenant, filter, position });
  }
}

/** Events of the changes that are being handed to streams. */
const written = new WeakMap<Change, Map<string, string>>();

function carries(body: unknown, labels: Readonly<Record<string, string>>): boolean {
  const found: unknown =
    typeof body === "object" && body !== null && "labels" in body ? body.labels : undefined;
  if (typeof found !== "object" || found === null) return false;
  const own = new Map<string, unknown>(Object.entries(found));
  return Object.entries(labels).every(([name, value]) => own.get(name) === value);
}

function closed(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
