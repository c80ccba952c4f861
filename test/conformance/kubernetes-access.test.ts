import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";
import { ApiError } from "../../src/runtimes/kubernetes/api-error.ts";
import { PodApi } from "../../src/runtimes/kubernetes/pod-api.ts";
import { type PodEvent, watchPods } from "../../src/runtimes/kubernetes/pod-watch.ts";
import type { SeenRequest } from "../support/kubernetes/api-call.ts";
import { Cluster, type Fault } from "../support/kubernetes/cluster.ts";
import { until } from "../support/until.ts";

const never = new AbortController().signal;
const namespace = "access";

const manifest = (name: string) => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, labels: { of: "test" }, finalizers: ["holdfast.dev/proof-of-stop"] },
  spec: {
    restartPolicy: "Never",
    containers: [{ name: "main", image: "registry.test/shell:1", command: ["/bin/true"] }],
    schedulingGates: [{ name: "holdfast.dev/held" }],
  },
});

const failsWith =
  (status: number, reason?: string) =>
  (error: unknown): boolean => {
    assert.ok(error instanceof ApiError, String(error));
    assert.equal(error.status, status);
    if (reason !== undefined) assert.equal(error.reason, reason);
    return true;
  };

describe("access to the Kubernetes API", () => {
  let cluster: Cluster;
  let api: PodApi;
  let serial = 0;
  const next = () => `pod-${(serial += 1)}`;
  const on = (method: string, times: number, does: Fault["does"]) =>
    cluster.fail({ matches: (request) => request.method === method, times, does });
  const count = (matches: (request: SeenRequest) => boolean) => cluster.requests.filter(matches).length;

  before(async () => {
    cluster = await Cluster.start();
    api = new PodApi(cluster.connection(), namespace, { firstDelayMs: 5, requestMs: 2_000, pageItemsMax: 2 });
  });
  beforeEach(() => {
    cluster.requests.length = 0;
  });
  after(async () => {
    api.close();
    await cluster.close();
  });

  test("errors carry the status and the reason, and whether to try again", async () => {
    const name = next();
    await api.create(manifest(name), never);
    await assert.rejects(api.create(manifest(name), never), failsWith(409, "AlreadyExists"));
    await assert.rejects(api.delete(name, { uid: "another" }, never), failsWith(409, "Conflict"));
    const patch = [{ op: "test", path: "/metadata/uid", value: "another" }] as const;
    await assert.rejects(api.patch(name, patch, never), failsWith(422, "Invalid"));
    await assert.rejects(api.patch("absent", patch, never), failsWith(404, "NotFound"));
    assert.equal(await api.get("absent", never), null);
    assert.equal(
      count(({ method }) => method !== "GET"),
      5,
    );
  });

  test("a busy server is asked again, and no earlier than it says", async () => {
    on("GET", 1, { kind: "status", code: 429, retryAfter: 1 });
    const began = performance.now();
    assert.equal(await api.get("absent", never), null);
    assert.ok(performance.now() - began >= 990);
    assert.equal(cluster.requests.length, 2);
  });

  test("a server that wants a longer pause than a request may take is not waited for", async () => {
    on("GET", 1, { kind: "status", code: 429, retryAfter: 600 });
    await assert.rejects(api.get("absent", never), failsWith(429, "TooManyRequests"));
    assert.equal(cluster.requests.length, 1);
  });

  test("faults that pass are tried again, a bounded number of times", async () => {
    on("GET", 1, { kind: "status", code: 503 });
    on("GET", 1, { kind: "reset" });
    assert.equal(await api.get("absent", never), null);
    on("GET", 100, { kind: "status", code: 503 });
    cluster.requests.length = 0;
    await assert.rejects(api.get("absent", never), failsWith(503));
    assert.equal(cluster.requests.length, api.limits.attemptsMax);
    cluster.heal();
  });

  test("an answer that was lost leaves an object that the next try finds", async () => {
    const name = next();
    on("POST", 1, { kind: "lost" });
    await assert.rejects(api.create(manifest(name), never), failsWith(409, "AlreadyExists"));
    assert.equal((await api.get(name, never))?.pod.metadata.name, name);
  });

  test("a request ends by its time limit and by its caller's signal", async () => {
    const quick = new PodApi(cluster.connection(), namespace, { requestMs: 50, attemptsMax: 1 });
    on("GET", 1, { kind: "slow", ms: 400 });
    await assert.rejects(quick.get("absent", never), failsWith(0, "NoAnswer"));
    on("GET", 1, { kind: "slow", ms: 400 });
    const gone = new AbortController();
    const asking = api.get("absent", gone.signal);
    gone.abort(new Error("the caller went away"));
    await assert.rejects(asking, /the caller went away/);
    quick.close();
  });

  test("a rotated token is used from the next request on", async () => {
    let token = "old";
    const credentials = () => Promise.resolve({ authorization: `Bearer ${token}` });
    const authorized = new PodApi({ server: cluster.connection().server, credentials }, namespace);
    cluster.token = "new";
    await assert.rejects(authorized.get("absent", never), failsWith(401, "Unauthorized"));
    token = "new";
    assert.equal(await authorized.get("absent", never), null);
    cluster.token = null;
    authorized.close();
  });

  test("E21: a list comes in pages of one snapshot", async () => {
    for (const name of ["list-a", "list-b", "list-c"]) {
      await api.create({ ...manifest(name), metadata: { name, labels: { of: "list" } } }, never);
    }
    const names: string[] = [];
    for await (const { items } of api.pages("of=list", never)) {
      names.push(...items.map(({ metadata }) => metadata.name));
      if (names.length === 2) {
        const name = "list-bb";
        await api.create({ ...manifest(name), metadata: { name, labels: { of: "list" } } }, never);
      }
    }
    assert.deepEqual(names, ["list-a", "list-b", "list-c"]);
  });

  test("a list whose snapshot is gone says so", async () => {
    const read = async () => {
      for await (const _page of api.pages("of=list", never)) cluster.lists.forget();
    };
    await assert.rejects(read(), failsWith(410, "Expired"));
  });

  describe("watch", () => {
    let end = new AbortController();
    beforeEach(() => {
      end = new AbortController();
    });
    // Also of a test that failed: a watch that nobody ends keeps this process alive.
    afterEach(() => end.abort());
    const follow = (by = api): PodEvent[] => {
      const events: PodEvent[] = [];
      const { signal } = end;
      void (async () => {
        for await (const event of watchPods(by, "of=test", signal)) events.push(event);
      })();
      return events;
    };
    const listed = (events: readonly PodEvent[]) => events.filter(({ type }) => type === "RELISTED").length;
    const saw = (events: readonly PodEvent[], name: string, type: PodEvent["type"] = "ADDED") =>
      until(`the watch shows ${name} ${type}`, () =>
        events.some((event) => event.type === type && "pod" in event && event.pod.metadata.name === name),
      );

    test("it shows what is there, and then each change", async () => {
      const events = follow();
      await until("it has listed", () => listed(events) === 1);
      const name = next();
      const { metadata } = await api.create(manifest(name), never);
      await saw(events, name);
      await api.delete(name, { uid: metadata.uid }, never);
      await saw(events, name, "MODIFIED");
      assert.equal(listed(events), 1);
    });

    test("after a restart every version is too old: it lists again and misses nothing", async () => {
      const events = follow();
      await until("it watches", () => count(({ query }) => query.has("watch")) >= 1);
      await cluster.restart();
      const name = next();
      await api.create(manifest(name), never);
      await until("it knows the pod", () =>
        events.some((event) =>
          event.type === "RELISTED"
            ? event.pods.some(({ metadata }) => metadata.name === name)
            : event.pod.metadata.name === name,
        ),
      );
    });

    test("a bookmark moves the version on, so that a watch that ended goes on without a list", async () => {
      cluster.watches.bookmarkMs = 20;
      const short = new PodApi(cluster.connection(), namespace, { watchSeconds: 1, firstDelayMs: 5 });
      const events = follow(short);
      await until("it watches again", () => count(({ query }) => query.has("watch")) >= 2);
      const name = next();
      await api.create(manifest(name), never);
      await saw(events, name);
      assert.equal(listed(events), 1);
      cluster.watches.bookmarkMs = 60_000;
      end.abort();
      short.close();
    });

    test("too long a silence is a dead connection, or a version of the future: it lists again", async () => {
      const impatient = new PodApi(cluster.connection(), namespace, { silenceMs: 50, firstDelayMs: 5 });
      const events = follow(impatient);
      await until("it lists again", () => listed(events) >= 2);
      end.abort();
      impatient.close();
    });

    test("events that come twice or late are hints like any other", async () => {
      cluster.watches.copies = 2;
      cluster.watches.delayMs = 30;
      const events = follow();
      // From its list on nothing is missed; requests are no sign, as the watch before may have sent a last one.
      await until("it has listed", () => listed(events) === 1);
      const name = next();
      await api.create(manifest(name), never);
      await saw(events, name);
      cluster.watches.copies = 1;
      cluster.watches.delayMs = 0;
    });
  });
});
