import { Type } from "typebox";
import { BlobRefusal, type BlobStore } from "../core/blob.port.ts";
import { HoldfastError } from "../core/errors.ts";
import { brandId, type JobId } from "../core/ids.ts";
import { view } from "../core/postgres/transition.ts";
import { type Gateway, type GatewayServer, principalOf } from "../http/gateway.ts";
import { problems } from "../http/openapi.ts";
import { Uuid } from "../wire/job.ts";
import { findArtifact } from "./inspect.store.ts";

const ArtifactParams = Type.Object(
  { id: Uuid, name: Type.String({ pattern: "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$" }) },
  { additionalProperties: false },
);
const mediaType = /^[a-z0-9][a-z0-9!#$&^_.+-]*\/[a-z0-9][a-z0-9!#$&^_.+-]*(?:; ?[a-z0-9-]+=[a-z0-9-]+)?$/i;

export function artifactRoute(server: GatewayServer, gateway: Gateway, blobs: BlobStore): void {
  server.get(
    "/v1/jobs/:id/artifacts/:name",
    {
      exposeHeadRoute: false,
      config: { scope: "jobs:read" },
      schema: {
        operationId: "downloadArtifact",
        summary: "An artifact's bytes, with their digest",
        tags: ["jobs"],
        params: ArtifactParams,
        response: {
          200: {
            description: "The bytes",
            content: {
              "application/octet-stream": {
                schema: Type.Unsafe<unknown>({ type: "string", format: "binary" }),
              },
            },
          },
          ...problems(401, 403, 404, 410),
        },
      },
    },
    async (request, reply) => {
      const { tenant } = principalOf(request);
      const { id, name } = request.params;
      const artifact = await view(gateway.db, { role: "gateway", tenant, name: "find artifact" }, (tx) =>
        findArtifact(tx, brandId<JobId>(id), name),
      );
      const given = new AbortController();
      reply.raw.once("close", () => given.abort());
      const bytes = await blobs.read(artifact.blob_key, artifact, given.signal).catch(refuse);
      return reply
        .headers({
          "content-type": mediaType.test(artifact.media_type)
            ? artifact.media_type
            : "application/octet-stream",
          "content-length": String(artifact.bytes),
          // The name has no character that would need quoting.
          "content-disposition": `attachment; filename="${artifact.name}"`,
          "repr-digest": `sha-256=:${Buffer.from(artifact.sha256, "hex").toString("base64")}:`,
          etag: `"${artifact.sha256}"`,
        })
        .send(bytes);
    },
  );
}

function refuse(error: unknown): never {
  if (error instanceof BlobRefusal && error.reason === "absent") {
    throw new HoldfastError("gone", "the artifact's bytes are no longer there", { cause: error });
  }
  throw error;
}
