import type { GatewayServer } from "./gateway.ts";
import { readJson } from "./json.ts";
import type { GatewayLimits } from "./limits.ts";

/**
 * JSON alone. The framework counts the bytes as they come in and stops at the limit (413), before anything is
 * read as text; the server's own timeout ends a body that dawdles (408) (G11).
 */
export function acceptJson(
  server: GatewayServer,
  limits: Pick<GatewayLimits, "bodyBytes" | "jsonDepth">,
): void {
  server.removeAllContentTypeParsers();
  server.addContentTypeParser(
    ["application/json", "application/merge-patch+json"],
    { parseAs: "buffer", bodyLimit: limits.bodyBytes },
    // An async parser: what it throws becomes the request's refusal.
    // oxlint-disable-next-line require-await
    async (_request: unknown, body: string | Buffer) =>
      readJson(Buffer.from(body), { depth: limits.jsonDepth, what: "the body" }),
  );
}
