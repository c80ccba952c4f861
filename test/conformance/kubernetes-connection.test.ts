import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { IncomingHttpHeaders } from "node:http";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { isHoldfastError } from "../../src/core/errors.ts";
import { isApiError } from "../../src/runtimes/kubernetes/api-error.ts";
import { connectionFrom } from "../../src/runtimes/kubernetes/kube-config.ts";
import { PodApi } from "../../src/runtimes/kubernetes/pod-api.ts";

const never = new AbortController().signal;

function hasOpenssl(): boolean {
  try {
    execFileSync("openssl", ["version"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

describe("connection from a kubeconfig", {
  skip: !hasOpenssl() && "no openssl to make a certificate with",
}, () => {
  let folder: string;
  let server: Server;
  let headers: IncomingHttpHeaders = {};
  const path = (name: string) => join(folder, name);

  const kubeconfig = (
    user: object,
    cluster: object = { "certificate-authority": path("cert.pem") },
  ): string => {
    const { port } = server.address() as AddressInfo;
    const config = {
      apiVersion: "v1",
      kind: "Config",
      "current-context": "test",
      clusters: [{ name: "test", cluster: { server: `https://127.0.0.1:${port}`, ...cluster } }],
      users: [{ name: "test", user }],
      contexts: [{ name: "test", context: { cluster: "test", user: "test", namespace: "sandboxes" } }],
    };
    writeFileSync(path("config"), JSON.stringify(config));
    return path("config");
  };
  const ask = async (file: string) => {
    const { connection, namespace } = await connectionFrom({ kind: "kubeconfig", path: file });
    const api = new PodApi(connection, namespace ?? "", { attemptsMax: 1 });
    try {
      return await api.get("absent", never);
    } finally {
      api.close();
    }
  };

  before(async () => {
    folder = mkdtempSync(join(tmpdir(), "hf-kubeconfig-"));
    const subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"];
    const files = ["-keyout", path("key.pem"), "-out", path("cert.pem")];
    const kind = [
      "-x509",
      "-newkey",
      "ec",
      "-pkeyopt",
      "ec_paramgen_curve:prime256v1",
      "-nodes",
      "-days",
      "2",
    ];
    execFileSync("openssl", ["req", ...kind, ...files, ...subject], { stdio: "ignore" });
    const tls = { key: readFileSync(path("key.pem")), cert: readFileSync(path("cert.pem")) };
    server = createServer(
      { ...tls, ca: tls.cert, requestCert: true, rejectUnauthorized: false },
      (request, response) => {
        ({ headers } = request);
        response.writeHead(404, { "content-type": "application/json" });
        response.end(JSON.stringify({ kind: "Status", reason: "NotFound", code: 404, message: request.url }));
      },
    );
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
  });
  after(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    rmSync(folder, { recursive: true, force: true });
  });

  test("the server must be who its authority says, and gets the token", async () => {
    assert.equal(await ask(kubeconfig({ token: "secret" })), null);
    assert.equal(headers.authorization, "Bearer secret");
  });

  test("a server of another authority is not talked to", async () => {
    headers = {};
    await assert.rejects(ask(kubeconfig({ token: "secret" }, {})), (error) => isApiError(error, 0));
    assert.deepEqual(headers, {});
  });

  test("a token file is read, as that of a pod's service account is", async () => {
    writeFileSync(path("token"), "from-a-file");
    const fileProvider = { name: "tokenFile", config: { tokenFile: path("token") } };
    assert.equal(await ask(kubeconfig({ "auth-provider": fileProvider })), null);
    assert.equal(headers.authorization, "Bearer from-a-file");
  });

  test("a client certificate is shown", async () => {
    let shown = "";
    server.once("secureConnection", (socket) => {
      shown = String(socket.getPeerCertificate().subject?.CN);
    });
    const user = { "client-certificate": path("cert.pem"), "client-key": path("key.pem") };
    assert.equal(await ask(kubeconfig(user)), null);
    assert.equal(shown, "127.0.0.1");
  });

  test("what can't be read, or asks for what isn't supported, is named", async () => {
    const invalid = (error: unknown) => isHoldfastError(error, "invalid_configuration");
    await assert.rejects(connectionFrom({ kind: "kubeconfig", path: path("absent") }), invalid);
    const proxied = kubeconfig({}, { "proxy-url": "http://127.0.0.1:1" });
    await assert.rejects(connectionFrom({ kind: "kubeconfig", path: proxied }), invalid);
  });
});
