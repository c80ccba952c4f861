import { Type } from "typebox";
import { BlobRefusal, type BlobStore } from "../core/blob.port.ts";
import { HoldfastError } from "../core/errors.ts";
import { formatInstant, instant } from "../core/time.ts";
import { type Gateway, type GatewayServer, principalOf } from "../http/gateway.ts";
import { look } from "../http/look.ts";
import { problems } from "../http/openapi.ts";
import { decodePageToken, encodePageToken, PageLimit, PageToken, pageLimitOf } from "../http/page-token.ts";
import { Uuid } from "../wire/job.ts";
import { RevisionView } from "../wire/session.ts";
import { type BundleRevision, getRevision, listRevisions } from "./bundle-revision.store.ts";
import { SessionParams } from "./http-session.ts";
import { getSession } from "./session.store.ts";

const closed = { additionalProperties: false } as const;
const RevisionParams = Type.Object(
  { id: Uuid, revision: Type.String({ pattern: "^[1-9][0-9]{0,14}$" }) },
  closed,
);
const RevisionQuery = Type.Object(
  { limit: Type.Optional(PageLimit), page_token: Type.Optional(PageToken) },
  closed,
);
const RevisionPage = Type.Object(
  { items: Type.Array(RevisionView), next_page_token: Type.Union([Type.String(), Type.Null()]) },
  { ...closed, title: "RevisionPage" },
);

export function revisionRoutes(server: GatewayServer, gateway: Gateway, blobs: BlobStore): void {
  listRoute(server, gateway);
  getRoute(server, gateway);
  downloadRoute(server, gateway, blobs);
}

function listRoute(server: GatewayServer, gateway: Gateway): void {
  server.get(
    "/v1/sessions/:id/revisions",
    {
      config: { scope: "sessions:read" },
      schema: {
        operationId: "listRevisions",
        summary: "What was committed, newest first",
        tags: ["sessions"],
        params: SessionParams,
        querystring: RevisionQuery,
        response: { 200: RevisionPage, ...problems(400, 401, 403, 404) },
      },
    },
    async (request) => {
      const session = request.params.id;
      const bound = { list: "revisions", tenant: principalOf(request).tenant, session };
      const { limit: asked, page_token: token } = request.query;
      const before = token === undefined ? {} : { before: BigInt(decodePageToken(bound, token).at) };
      const limit = pageLimitOf(asked, gateway.limits);
      return look(gateway, request, async (tx) => {
        await getSession(tx, session);
        const found = await listRevisions(tx, session, { ...before, limit: limit + 1 });
        const items = found.slice(0, limit);
        const last = items.at(-1);
        const more = found.length > limit && last !== undefined;
        return {
          items: items.map(revisionView),
          next_page_token: more ? encodePageToken(bound, { at: instant(last.revision), id: session }) : null,
        };
      });
    },
  );
}

function getRoute(server: GatewayServer, gateway: Gateway): void {
  server.get(
    "/v1/sessions/:id/revisions/:revision",
    {
      config: { scope: "sessions:read" },
      schema: {
        operationId: "getRevision",
        summary: "One of them, which never changes",
        tags: ["sessions"],
        params: RevisionParams,
        response: { 200: RevisionView, ...problems(401, 403, 404) },
      },
    },
    async (request) => {
      const { id, revision } = request.params;
      return revisionView(await look(gateway, request, (tx) => getRevision(tx, id, BigInt(revision))));
    },
  );
}

function downloadRoute(server: GatewayServer, gateway: Gateway, blobs: BlobStore): void {
  server.get(
    "/v1/sessions/:id/revisions/:revision/bundle",
    {
      exposeHeadRoute: false,
      config: { scope: "sessions:read" },
      schema: {
        operationId: "downloadBundle",
        summary: "A revision's bundle, with its digest: a ustar archive, compressed with zstd",
        tags: ["sessions"],
        params: RevisionParams,
        response: {
          200: {
            description: "The bytes",
            content: {
              "application/zstd": { schema: Type.Unsafe<unknown>({ type: "string", format: "binary" }) },
            },
          },
          ...problems(401, 403, 404, 410),
        },
      },
    },
    async (request, reply) => {
      const { id, revision } = request.params;
      const found = await look(gateway, request, (tx) => getRevision(tx, id, BigInt(revision)));
      const { bundle, removedAt } = found;
      if (bundle === null) throw new HoldfastError("not_found", "the revision has no bundle");
      if (removedAt !== null) throw gone();
      const given = new AbortController();
      reply.raw.once("close", () => given.abort());
      const bytes = await blobs.read(bundle.key, bundle, given.signal).catch((error: unknown) => {
        if (error instanceof BlobRefusal && error.reason === "absent") throw gone(error);
        throw error;
      });
      return reply
        .headers({
          "content-type": "application/zstd",
          "content-length": String(bundle.bytes),
          "content-disposition": `attachment; filename="${id}-${revision}.tar.zst"`,
          "repr-digest": `sha-256=:${Buffer.from(bundle.sha256, "hex").toString("base64")}:`,
          etag: `"${bundle.sha256}"`,
        })
        .send(bytes);
    },
  );
}

function gone(cause?: unknown): HoldfastError {
  return new HoldfastError("gone", "the bundle went with its session", { cause });
}

function revisionView(found: BundleRevision): RevisionView {
  const { bundle, from, removedAt } = found;
  return {
    session_id: found.session,
    revision: Number(found.revision),
    activation_id: found.activation,
    bundle: bundle === null ? null : { bytes: Number(bundle.bytes), sha256: bundle.sha256 },
    from: from === null ? null : { session_id: from.session, revision: Number(from.revision) },
    committed_at: formatInstant(found.committedAt),
    removed_at: removedAt === null ? null : formatInstant(removedAt),
  };
}
