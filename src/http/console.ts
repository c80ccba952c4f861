import { createHash } from "node:crypto";
import type { FastifyReply, FastifyRequest } from "fastify";
import { Type } from "typebox";
import { HoldfastError } from "../core/errors.ts";
import { formatInstant, toMilliseconds } from "../core/time.ts";
import { assertSameOrigin, forgetToken, openToken, sealToken } from "./console-session.ts";
import type { GatewayServer } from "./gateway.ts";
import { authenticate } from "./principal.store.ts";
import type { Authenticator, Principal } from "./principal.ts";

/** One file of the console, as it is and compressed. */
export interface ConsoleFile {
  readonly type: string;
  readonly bytes: Buffer;
  readonly gzip: Buffer;
}

export interface ConsoleFiles {
  /** The one page: what it shows is up to its address. */
  readonly page: ConsoleFile;
  /** By name. Names carry a digest of the content, so that they may be kept for ever. */
  readonly assets: ReadonlyMap<string, ConsoleFile>;
}

/**
 * Nothing of others, nothing inline, nowhere else to connect to, in nobody's frame, and no text that could
 * become markup (Trusted Types).
 */
const contentSecurityPolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join("; ");

const hidden = { hide: true } as const;
const open = { scope: "public" } as const;

/** The operators' page and its sign-in. It is no part of the API: programs send their token. */
export function consoleRoutes(
  server: GatewayServer,
  options: { readonly files: () => Promise<ConsoleFiles>; readonly authenticators: readonly Authenticator[] },
): void {
  const { authenticators } = options;
  server.get("/", { config: open, schema: hidden }, (_request, reply) => reply.redirect("/console", 303));
  const page = async (request: FastifyRequest, reply: FastifyReply) => {
    const { page } = await options.files();
    void reply.headers({
      "content-security-policy": contentSecurityPolicy,
      "cross-origin-opener-policy": "same-origin",
      "permissions-policy": "camera=(), geolocation=(), microphone=()",
    });
    return send(request, reply, page, "no-cache");
  };
  server.get("/console", { config: open, schema: hidden }, page);
  // Addresses of what it shows, so that they can be linked and reloaded.
  server.get("/console/*", { config: open, schema: hidden }, page);
  server.get(
    "/console/assets/:name",
    { config: open, schema: { ...hidden, params: Type.Object({ name: Type.String() }) } },
    async (request, reply) => {
      const { assets } = await options.files();
      const asset = assets.get(request.params.name);
      if (asset === undefined) throw new HoldfastError("not_found", "the console has no such file");
      return send(request, reply, asset, "public, max-age=31536000, immutable");
    },
  );

  server.post("/console/session", { config: open, schema: hidden }, async (request, reply) => {
    assertSameOrigin(request.headers);
    const { authorization, host = "" } = request.headers;
    const principal = await authenticate(authenticators, authorization);
    const token = (authorization ?? "").replace(/^bearer +/i, "");
    const seconds = (toMilliseconds(principal.expiresAt) - Date.now()) / 1_000;
    const sealed = sealToken(token, { host, secure: isSecure(request), seconds });
    void reply.header("set-cookie", sealed.cookie);
    return { key: sealed.key, ...principalView(principal) };
  });
  server.get("/console/session", { config: open, schema: hidden }, async (request) =>
    principalView(await authenticate(authenticators, openToken(request.headers))),
  );
  server.delete("/console/session", { config: open, schema: hidden }, async (request, reply) => {
    assertSameOrigin(request.headers);
    void reply.header("set-cookie", forgetToken(request.headers.host ?? "", isSecure(request)));
    return reply.code(204).send();
  });
}

/** TLS may end in front of us; the browser knows what it used. */
const isSecure = ({ headers }: FastifyRequest) => headers.origin?.startsWith("https:") === true;

const principalView = ({ tenant, name, scopes, expiresAt }: Principal) => ({
  tenant,
  principal: name,
  scopes: [...scopes],
  expires_at: formatInstant(expiresAt),
});

const tags = new WeakMap<ConsoleFile, string>();

function send(request: FastifyRequest, reply: FastifyReply, file: ConsoleFile, keep: string): FastifyReply {
  const tag = tags.get(file) ?? `"${createHash("sha256").update(file.bytes).digest("hex").slice(0, 32)}"`;
  tags.set(file, tag);
  void reply.headers({ "cache-control": keep, etag: tag, vary: "accept-encoding" });
  if (request.headers["if-none-match"] === tag) return reply.code(304).send();
  void reply.type(file.type);
  const compressed = /\bgzip\b/.test(request.headers["accept-encoding"] ?? "");
  return compressed ? reply.header("content-encoding", "gzip").send(file.gzip) : reply.send(file.bytes);
}
