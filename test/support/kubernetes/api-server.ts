import { type ChildProcess, spawn } from "node:child_process";
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { request } from "node:https";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { KubernetesConnection } from "../../../src/runtimes/kubernetes/connection.ts";
import { until } from "../until.ts";

export interface ApiServer {
  readonly connection: KubernetesConnection;
  close(): Promise<void>;
}

/** Both begin with an empty store, and a machine may be slow. */
const startMs = 90_000;
const stopMs = 15_000;

/**
 * A real kube-apiserver with its own etcd, on loopback, in a folder that goes with it. Nothing else runs: no
 * controller, no scheduler, no node. `assets` is the folder that has both programs.
 */
export async function startApiServer(assets: string): Promise<ApiServer> {
  const folder = await mkdtemp(join(tmpdir(), "hf-api-server-"));
  const children: ChildProcess[] = [];
  const close = async () => {
    for (const child of children.toReversed()) await end(child);
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  };
  const start = (program: string, flags: Readonly<Record<string, string>>) => {
    const words = Object.entries(flags).map(([name, value]) => `--${name}=${value}`);
    const child = spawn(join(assets, program), words, { stdio: ["ignore", "ignore", "pipe"] });
    children.push(child);
    child.stderr?.pipe(createWriteStream(join(folder, `${program}.log`)));
    return child;
  };
  try {
    const [etcdPort, peerPort, port] = [await freePort(), await freePort(), await freePort()];
    const etcd = `http://127.0.0.1:${etcdPort}`;
    const store = start("etcd", {
      "data-dir": join(folder, "etcd"),
      "listen-client-urls": etcd,
      "advertise-client-urls": etcd,
      "listen-peer-urls": `http://127.0.0.1:${peerPort}`,
      "initial-advertise-peer-urls": `http://127.0.0.1:${peerPort}`,
      "initial-cluster": `default=http://127.0.0.1:${peerPort}`,
      "unsafe-no-fsync": "true",
    });
    await answers(store, folder, "etcd", async () => (await fetch(`${etcd}/health`)).ok);
    const token = randomBytes(16).toString("hex");
    const keys = generateKeyPairSync("rsa", {
      modulusLength: 2048,
      publicKeyEncoding: { type: "spki", format: "pem" },
      privateKeyEncoding: { type: "pkcs8", format: "pem" },
    });
    await writeFile(join(folder, "sa.pub"), keys.publicKey);
    await writeFile(join(folder, "sa.key"), keys.privateKey, { mode: 0o600 });
    await writeFile(join(folder, "tokens"), `${token},test,test,"system:masters"\n`, { mode: 0o600 });
    const api = start("kube-apiserver", {
      "etcd-servers": etcd,
      "bind-address": "127.0.0.1",
      "advertise-address": "127.0.0.1",
      "secure-port": String(port),
      "cert-dir": join(folder, "certificates"),
      "token-auth-file": join(folder, "tokens"),
      "authorization-mode": "RBAC",
      "service-account-issuer": "https://127.0.0.1",
      "service-account-key-file": join(folder, "sa.pub"),
      "service-account-signing-key-file": join(folder, "sa.key"),
      "service-cluster-ip-range": "10.0.0.0/24",
      // Nothing makes service accounts here.
      "disable-admission-plugins": "ServiceAccount",
    });
    const authorization = `Bearer ${token}`;
    const connection: KubernetesConnection = {
      server: `https://127.0.0.1:${port}`,
      // Its certificate is one that it made for itself, and it is our child on loopback.
      credentials: () => Promise.resolve({ authorization, rejectUnauthorized: false }),
    };
    // It is asked for as long as the namespace that pods will be in is not there: it makes that one last.
    const ask = () => statusOf(`${connection.server}/api/v1/namespaces/default`, authorization);
    await answers(api, folder, "kube-apiserver", async () => (await ask()) === 200);
    return { connection, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Until it does, or has ended: then its last words say why. */
async function answers(
  child: ChildProcess,
  folder: string,
  program: string,
  probe: () => Promise<boolean>,
): Promise<void> {
  let failure: Error | null = null;
  child.once("error", (error) => {
    failure = error;
  });
  const ended = await until(
    `${program} answers`,
    async () => {
      if (failure !== null || child.exitCode !== null || child.signalCode !== null) return "ended";
      return (await probe().catch(() => false)) ? "answers" : null;
    },
    startMs,
  );
  if (ended === "answers") return;
  const words = await readFile(join(folder, `${program}.log`), "utf8").catch(() => "");
  throw new Error(`${program} ended: ${words.slice(-1000)}`, { cause: failure });
}

function statusOf(url: string, authorization: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const sent = request(url, { headers: { authorization }, rejectUnauthorized: false }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    sent.once("error", reject).setTimeout(5_000, () => sent.destroy(new Error("no answer")));
    sent.end();
  });
}

async function end(child: ChildProcess): Promise<void> {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, "exit");
  child.kill("SIGTERM");
  const hurry = setTimeout(() => child.kill("SIGKILL"), stopMs);
  await exit;
  clearTimeout(hurry);
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
