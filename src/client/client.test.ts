import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  artifactView,
  attemptView,
  finishedAt,
  jobId,
  jobView,
  logLine,
} from "../../test/support/job-views.ts";
import { scriptedServer, sendJson, sendProblem } from "../../test/support/scripted-server.ts";
import type { JobSubmission } from "../wire/job.ts";
import { ApiError, type Client, CursorExpiredError, createClient } from "./client.ts";

const submission: JobSubmission = {
  apiVersion: "holdfast/v1",
  kind: "Job",
  metadata: { name: "site" },
  spec: { phases: [{ name: "build", kind: "compile", command: ["make"] }] },
};

/** Waits are real but short. */
const quick = { firstMs: 1, longestMs: 4 };

const clientOf = (
  url: string,
  more: { readonly timeoutMs?: number; readonly silenceMs?: number } = {},
): Client =>
  createClient({ url, token: "hft_test", retry: quick, streamRetry: { ...quick, triesMax: 6 }, ...more });

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

const apiError = (code: string, status: number) => (error: unknown) => {
  assert.ok(error instanceof ApiError, String(error));
  assert.deepEqual([error.code, error.status], [code, status]);
  return true;
};

describe("requests", () => {
  test("G3: a mutation sent again after 503 and a dropped connection carries the same Idempotency-Key", async (t) => {
    const server = await scriptedServer(t, (request, response) => {
      if (request.earlier === 0) return sendProblem(response, 503, "unavailable");
      if (request.earlier === 1) return void response.destroy();
      sendJson(response, 201, jobView(), { etag: '"7"' });
    });
    const client = clientOf(server.url);
    const job = await client.submitJob(submission);
    assert.equal(job.id, jobId);
    assert.equal(client.etagOf(job), '"7"');
    const keys = server.seen.map(({ headers }) => headers["idempotency-key"]);
    assert.equal(keys.length, 3);
    assert.equal(new Set(keys).size, 1);
    assert.match(String(keys[0]), /^[0-9a-f]{32}$/);
    assert.deepEqual(JSON.parse(server.seen[0]?.body ?? ""), submission);
    assert.equal(server.seen[0]?.headers.authorization, "Bearer hft_test");
  });

  test("a caller's own key is sent as it is, and two calls get two keys", async (t) => {
    const server = await scriptedServer(t, (_, response) => sendJson(response, 202, jobView()));
    const client = clientOf(server.url);
    await client.cancelJob(jobId, { reason: "no longer needed", idempotencyKey: "mine" });
    await client.cancelJob(jobId);
    await client.cancelJob(jobId);
    const [own, first, second] = server.seen.map(({ headers }) => headers["idempotency-key"]);
    assert.equal(own, "mine");
    assert.notEqual(first, second);
    assert.equal(server.seen[0]?.path, `/v1/jobs/${jobId}:cancel`);
    assert.equal(server.seen[0]?.body, '{"reason":"no longer needed"}');
  });

  test("Retry-After is waited for, and one that is too long is told instead", async (t) => {
    const server = await scriptedServer(t, (request, response) => {
      if (request.method === "GET" && request.earlier > 0) return sendJson(response, 200, jobView());
      const seconds = request.method === "GET" ? "1" : "3600";
      sendProblem(response, 429, "queue_full", { detail: "1000 jobs wait" }, { "retry-after": seconds });
    });
    const started = performance.now();
    await clientOf(server.url).getJob(jobId);
    assert.ok(performance.now() - started >= 1000);
    await assert.rejects(clientOf(server.url).submitJob(submission), (error) => {
      assert.ok(error instanceof ApiError);
      assert.equal(error.retryAfterSeconds, 3600);
      return apiError("queue_full", 429)(error);
    });
  });

  test("what the client got wrong is not sent again", async (t) => {
    const server = await scriptedServer(t, (_, response) =>
      sendProblem(
        response,
        400,
        "invalid_request",
        { detail: "one problem", errors: [{ pointer: "/spec", message: "is missing" }] },
        { "x-request-id": "r-1" },
      ),
    );
    await assert.rejects(clientOf(server.url).submitJob(submission), (error) => {
      assert.ok(error instanceof ApiError);
      assert.deepEqual(error.errors, [{ pointer: "/spec", message: "is missing" }]);
      assert.equal(error.requestId, "r-1");
      assert.equal(error.message, "one problem");
      return apiError("invalid_request", 400)(error);
    });
    assert.equal(server.seen.length, 1);
  });

  test("retries end: a server that stays away is `unavailable`, one that never was is `unreachable`", async (t) => {
    const server = await scriptedServer(t, (_, response) => sendProblem(response, 503, "unavailable"));
    await assert.rejects(clientOf(server.url).getJob(jobId), apiError("unavailable", 503));
    assert.equal(server.seen.length, 6);
    await assert.rejects(clientOf("http://127.0.0.1:1").getJob(jobId), apiError("unreachable", 0));
  });

  test("a schema that does not fit is not waited for, though it is a 503", async (t) => {
    const server = await scriptedServer(t, (_, response) =>
      sendProblem(response, 503, "schema_incompatible"),
    );
    await assert.rejects(clientOf(server.url).getJob(jobId), apiError("schema_incompatible", 503));
    assert.equal(server.seen.length, 1);
  });

  test("another program's answer is named as such", async (t) => {
    const server = await scriptedServer(t, (request, response) => {
      const status = request.path.endsWith("/spec") ? 200 : 404;
      response.writeHead(status, { "content-type": "text/html" }).end("<h1>hello</h1>");
    });
    await assert.rejects(clientOf(server.url).getJob(jobId), apiError("unexpected_answer", 404));
    await assert.rejects(clientOf(server.url).getJobSpec(jobId), apiError("unexpected_answer", 200));
  });

  test("a redirect is not followed with the token", async (t) => {
    const server = await scriptedServer(
      t,
      (_, response) => void response.writeHead(302, { location: "http://127.0.0.1:1/" }).end(),
    );
    await assert.rejects(clientOf(server.url).getJob(jobId), apiError("unreachable", 0));
    assert.ok(server.seen.every(({ path }) => path === `/v1/jobs/${jobId}`));
  });

  test("a server that never answers is given up after the time-out; an abort is at once", async (t) => {
    const server = await scriptedServer(t, () => undefined);
    const client = createClient({ url: server.url, timeoutMs: 20, retry: { triesMax: 2, firstMs: 1 } });
    await assert.rejects(client.getJob(jobId), apiError("unreachable", 0));
    const controller = new AbortController();
    const waiting = clientOf(server.url).getJob(jobId, { signal: controller.signal });
    controller.abort(new Error("enough"));
    await assert.rejects(waiting, /enough/);
  });

  test("a patch carries If-Match; a stale one is told", async (t) => {
    const server = await scriptedServer(t, (request, response) =>
      request.headers["if-match"] === '"7"'
        ? sendJson(response, 200, jobView({ priority: 0 }))
        : sendProblem(response, 412, "precondition_failed"),
    );
    const client = clientOf(server.url);
    assert.equal((await client.patchJob(jobId, { priority: 0 }, { ifMatch: '"7"' })).priority, 0);
    const stale = client.patchJob(jobId, { priority: 0 }, { ifMatch: '"6"' });
    await assert.rejects(stale, apiError("precondition_failed", 412));
  });

  test("a list goes through all pages with the same filter", async (t) => {
    const server = await scriptedServer(t, ({ query }, response) => {
      const token = query.get("page_token");
      const items = [jobView({ name: token ?? "first" })];
      sendJson(response, 200, { items, next_page_token: token === null ? "second" : null, cursor: "9" });
    });
    const list = clientOf(server.url).listJobs({ state: "failed", labels: { a: "1", b: "2" } });
    assert.deepEqual(
      (await all(list)).map(({ name }) => name),
      ["first", "second"],
    );
    assert.deepEqual(server.seen[1]?.query.getAll("label"), ["a=1", "b=2"]);
    assert.equal(server.seen[1]?.query.get("state"), "failed");
    assert.equal((await list.page()).cursor, "9");
  });

  test("a download comes with the artifact that it must match", async (t) => {
    const server = await scriptedServer(t, ({ path }, response) => {
      if (path.endsWith("/artifacts"))
        return sendJson(response, 200, { items: [artifactView({ name: "a b.txt" })] });
      response.writeHead(200).end("bytes");
    });
    const { artifact, body } = await clientOf(server.url).downloadArtifact(jobId, "a b.txt");
    assert.equal(artifact.bytes, 5);
    assert.equal(await new Response(body).text(), "bytes");
    assert.equal(server.seen[1]?.path, `/v1/jobs/${jobId}/artifacts/a%20b.txt`);
    await assert.rejects(clientOf(server.url).downloadArtifact(jobId, "other"), apiError("not_found", 404));
  });
});

describe("E19: logs", () => {
  test("followed lines arrive once each, in order, over heartbeats, broken and refused connections", async (t) => {
    const server = await scriptedServer(t, (request, response) => {
      if (request.path === `/v1/jobs/${jobId}`) {
        return sendJson(response, 200, jobView({ finished_at: finishedAt, state: "succeeded" }));
      }
      if (request.path.endsWith("/attempts")) return sendJson(response, 200, { items: [attemptView()] });
      const line = (number: number) => `${JSON.stringify(logLine(number))}\n`;
      switch (request.query.get("after")) {
        case null:
          // The third line is cut in the middle.
          response.write(`\n${line(1)}\n${line(2)}{"cursor":"c3","te`, () => response.destroy());
          return;
        case "c2":
          if (request.earlier === 1) return sendProblem(response, 429, "too_many_streams");
          return void response.end(line(3));
        case "c3":
          return void response.end(line(4));
        default:
          return void response.end();
      }
    });
    const found = await all(clientOf(server.url).logs(jobId, { follow: true, phase: "build" }));
    assert.deepEqual(
      found.map(({ text }) => text),
      ["line 1", "line 2", "line 3", "line 4"],
    );
    const logRequests = server.seen.filter(({ path }) => path.endsWith("/logs"));
    assert.ok(logRequests.every(({ query }) => query.get("phase") === "build"));
    // Once the job is over, the rest is read without following.
    assert.deepEqual(
      logRequests.map(({ query }) => query.get("follow")),
      ["true", "true", "true", null, null],
    );
  });

  test("a stream that falls silent is resumed", async (t) => {
    const server = await scriptedServer(t, (request, response) => {
      if (request.query.get("after") === "c1") return void response.end();
      response.write(`${JSON.stringify(logLine(1))}\n`);
    });
    const found = await all(clientOf(server.url, { silenceMs: 50 }).logs(jobId));
    assert.equal(found.length, 1);
    assert.equal(server.seen[1]?.query.get("after"), "c1");
  });

  test("who stops reading closes the connection, and an abort ends it", async (t) => {
    const closed = Promise.withResolvers<void>();
    const server = await scriptedServer(t, (_, response) => {
      response.on("close", () => closed.resolve());
      response.write(`${JSON.stringify(logLine(1))}\n`);
    });
    for await (const line of clientOf(server.url).logs(jobId, { follow: true })) {
      assert.equal(line.text, "line 1");
      break;
    }
    await closed.promise;
    const controller = new AbortController();
    const reading = all(clientOf(server.url).logs(jobId, { follow: true, signal: controller.signal }));
    controller.abort(new Error("enough"));
    await assert.rejects(reading, /enough/);
  });

  test("a stream that brings nothing again and again is given up", async (t) => {
    const server = await scriptedServer(t, (request, response) => {
      if (request.path.endsWith("/logs")) return void response.destroy();
      sendJson(response, 200, jobView());
    });
    await assert.rejects(all(clientOf(server.url).logs(jobId, { follow: true })), apiError("unreachable", 0));
    assert.equal(server.seen.length, 6);
  });
});

describe("G7: watch", () => {
  const change = (number: number) => ({ cursor: `w${number}`, kind: "job", id: jobId, operation: "updated" });
  const event = (number: number) =>
    `id: w${number}\nevent: updated\ndata: ${JSON.stringify(change(number))}\n\n`;

  test("resumes strictly after the last change or bookmark", async (t) => {
    const server = await scriptedServer(t, (request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      if (request.earlier === 0) {
        // The second event is cut before its blank line: it has not arrived.
        response.write(`: heartbeat\n\n${event(1)}${event(2).slice(0, -1)}`, () => response.destroy());
      } else if (request.earlier === 1) {
        response.end(`${event(2)}id: w9\r\nevent: bookmark\r\ndata: {}\r\n\r\n`);
      } else {
        response.write(event(10));
      }
    });
    const found: string[] = [];
    for await (const { cursor } of clientOf(server.url).watch({ after: "w0", job: jobId, kind: "job" })) {
      found.push(cursor);
      if (cursor === "w10") break;
    }
    assert.deepEqual(found, ["w1", "w2", "w10"]);
    assert.deepEqual(
      server.seen.map(({ query }) => query.get("after")),
      ["w0", "w1", "w9"],
    );
    assert.equal(server.seen[2]?.query.get("job"), jobId);
  });

  test("a cursor that is too old is its own error, with a fresh cursor", async (t) => {
    const server = await scriptedServer(t, (_, response) =>
      sendProblem(response, 410, "cursor_expired", { cursor: "w100" }),
    );
    await assert.rejects(all(clientOf(server.url).watch({ after: "w1" })), (error) => {
      assert.ok(error instanceof CursorExpiredError);
      assert.equal(error.cursor, "w100");
      return true;
    });
    assert.equal(server.seen.length, 1);
  });
});
