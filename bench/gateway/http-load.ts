import { Agent, request } from "node:http";

/** Submissions over keep-alive connections for a while, each as soon as the one before is answered. */
const { url, tokens, clients, seconds } = JSON.parse(process.argv[2] ?? "{}") as {
  readonly url: string;
  readonly tokens: readonly string[];
  readonly clients: number;
  readonly seconds: number;
};

const body = JSON.stringify({
  apiVersion: "holdfast/v1",
  kind: "Job",
  metadata: { name: "bench" },
  spec: { phases: [{ name: "compile", kind: "compile", command: ["true"] }] },
});
const agent = new Agent({ keepAlive: true, maxSockets: clients });
const until = performance.now() + seconds * 1000;
const delays: number[] = [];

function submit(token: string, key: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const sent = request(
      `${url}/v1/jobs`,
      {
        method: "POST",
        agent,
        headers: {
          authorization: `Bearer ${token}`,
          "content-type": "application/json",
          "content-length": body.length,
          "idempotency-key": key,
        },
      },
      (response) => {
        response.resume();
        response.once("end", () =>
          response.statusCode === 201 ? resolve() : reject(new Error(`HTTP ${response.statusCode}`)),
        );
      },
    );
    sent.once("error", reject);
    sent.end(body);
  });
}

async function client(n: number): Promise<void> {
  const token = tokens[n % tokens.length] ?? "";
  for (let count = 0; performance.now() < until; count += 1) {
    const started = performance.now();
    await submit(token, `bench-${process.pid}-${n}-${count}`);
    delays.push(performance.now() - started);
  }
}

await Promise.all(Array.from({ length: clients }, (_, n) => client(n)));
agent.destroy();
delays.sort((a, b) => a - b);
const at = (share: number) => delays[Math.floor(share * (delays.length - 1))] ?? Number.NaN;
process.stdout.write(JSON.stringify({ perSecond: delays.length / seconds, p50: at(0.5), p99: at(0.99) }));
