import assert from "node:assert/strict";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { after, test } from "node:test";
import { insideTransition } from "../outside.ts";
import { addressCheck, parseNetwork } from "./address.ts";
import { type EgressRefusal, openEgress } from "./egress.ts";

const heard: string[] = [];
async function serve(listener: RequestListener): Promise<number> {
  const server = createServer((request, response) => {
    heard.push(`${request.headers.host} ${request.url}`);
    listener(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  after(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}
const loopback = [parseNetwork("127.0.0.1")];
const bounds = { timeoutMs: 2_000, answerBytesMax: 1_000 };
const refusedFor = (reason: EgressRefusal["reason"]) => (error: unknown) =>
  assert.equal((error as EgressRefusal).reason, reason, String(error)) === undefined;

test("only public addresses are connected to, and those of configured networks", () => {
  const isAllowed = addressCheck([]);
  for (const address of ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "2a00:1450::1"]) {
    assert.ok(isAllowed(address), address);
  }
  for (const address of [
    "127.0.0.1",
    "10.1.2.3",
    "172.31.0.1",
    "192.168.0.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd12::1",
    "ff02::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "64:ff9b::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "0:0:0:0:0:ffff:0a01:0203",
    // Mapped at all: nobody needs to write a public address that way.
    "::ffff:8.8.8.8",
    "nonsense",
  ]) {
    assert.ok(!isAllowed(address), address);
  }
  const inner = addressCheck([parseNetwork("10.1.0.0/16"), parseNetwork("fd00::/8")]);
  assert.ok(inner("10.1.2.3") && inner("::ffff:10.1.2.3") && inner("fd12::1") && inner("8.8.8.8"));
  assert.ok(!inner("10.2.0.1") && !inner("fc00::1"));
});

test("the name is resolved once, all of its addresses are checked, and the checked one is connected to", async () => {
  const port = await serve((_request, response) => response.end("inside"));
  const answers = [["127.0.0.1"], ["127.0.0.1", "10.0.0.1"], ["169.254.169.254"]];
  let asked = 0;
  const egress = openEgress({
    allowed: loopback,
    resolve: (name) => {
      assert.equal(name, "issuer.example");
      return Promise.resolve(answers[asked++] ?? []);
    },
  });
  const url = `http://issuer.example:${port}/keys?a=1`;
  const answer = await egress({ url, ...bounds });
  assert.deepEqual([answer.status, answer.body.toString(), asked], [200, "inside", 1]);
  assert.equal(heard.at(-1), `issuer.example:${port} /keys?a=1`);
  const before = heard.length;
  await assert.rejects(egress({ url, ...bounds }), refusedFor("address"));
  await assert.rejects(egress({ url, ...bounds }), refusedFor("address"));
  await assert.rejects(egress({ url, ...bounds }), refusedFor("unresolved"));
  assert.equal(heard.length, before);
});

test("an address in the URL is checked like any other, however it is written", async () => {
  const egress = openEgress({ allowed: [] });
  for (const host of [
    "127.0.0.1",
    "0x7f.1",
    "2130706433",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "169.254.169.254",
  ]) {
    await assert.rejects(egress({ url: `https://${host}/`, ...bounds }), refusedFor("address"), host);
  }
  for (const url of [
    "ftp://example.com",
    "https://user:secret@example.com/",
    "nothing",
    "file:///etc/passwd",
  ]) {
    await assert.rejects(egress({ url, ...bounds }), refusedFor("url"), url);
  }
});

test("plain http stays inside the configured networks", async () => {
  const egress = openEgress({ allowed: loopback, resolve: () => Promise.resolve(["8.8.8.8"]) });
  await assert.rejects(egress({ url: "http://example.com/", ...bounds }), refusedFor("url"));
});

test("no redirect is followed, and size and time are bounded", async () => {
  const port = await serve((request, response) => {
    if (request.url === "/moved") response.writeHead(302, { location: "/large" }).end();
    else if (request.url === "/large") response.end("x".repeat(2_000));
    else response.write("and so on");
  });
  const egress = openEgress({ allowed: loopback });
  const at = (path: string) => ({ ...bounds, url: `http://127.0.0.1:${port}${path}` });
  await assert.rejects(egress(at("/moved")), refusedFor("redirect"));
  await assert.rejects(egress(at("/large")), refusedFor("too_large"));
  await assert.rejects(egress({ ...at("/never"), timeoutMs: 100 }), refusedFor("timeout"));
  for (const path of ["/large", "/never"]) {
    const { status, body } = await egress({ ...at(path), bodiless: true });
    assert.deepEqual([status, body.length], [200, 0], path);
  }
  await assert.rejects(egress({ ...at("/moved"), bodiless: true }), refusedFor("redirect"));
});

test("S10: nothing leaves while a transition is open", async () => {
  const egress = openEgress({ allowed: loopback });
  await assert.rejects(
    insideTransition("test", () => egress({ url: "http://127.0.0.1:1/", ...bounds })),
    /transition "test" was open/,
  );
});
