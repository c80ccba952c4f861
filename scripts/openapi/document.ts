import { readFileSync } from "node:fs";
import { describeGateway, type GatewayOptions } from "../../src/http/server.ts";
import { type ApiParts, apiRoutes } from "../../src/main/api.ts";

/** The OpenAPI document of everything that a server can serve, without a store behind it. */
export function apiDocument(): Promise<object> {
  const text = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
  const { version } = JSON.parse(text) as { readonly version: string };
  return describeGateway({
    db: absent<GatewayOptions["db"]>(),
    reader: absent<GatewayOptions["reader"]>(),
    doorbell: absent<GatewayOptions["doorbell"]>(),
    release: version,
    routes: apiRoutes({
      blobs: absent<ApiParts["blobs"]>(),
      queueMax: 0,
      examine: () => Promise.reject(new Error("nobody asks")),
    }),
  });
}

/** Routes are described, never called: whoever asks this is wrong. */
function absent<T extends object>(): T {
  return new Proxy({} as T, {
    get(_target, name) {
      throw new Error(`a description needs no ${String(name)}`);
    },
  });
}
