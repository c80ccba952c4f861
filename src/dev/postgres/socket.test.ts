import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { removeSocketDirectory, socketDirectory } from "./socket.ts";

function folder(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "holdfast-socket-"));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

function socketOf(t: TestContext, directory: string): string {
  const socket = socketDirectory(directory, null, true);
  t.after(() => removeSocketDirectory(socket));
  return socket;
}

test("the socket's folder is beside the data and closed to others", (t) => {
  const directory = folder(t);
  const socket = socketOf(t, directory);
  assert.equal(socket, join(directory, "socket"));
  assert.equal(statSync(socket).mode & 0o777, 0o700);
  assert.equal(socketOf(t, directory), socket, "and is used again");
});

test("a path that is too long for a socket is replaced by a short one, always the same", (t) => {
  const directory = join(folder(t), "a-rather-long-name-".repeat(6));
  const socket = socketOf(t, directory);
  assert.ok(!socket.startsWith(directory));
  assert.ok(socket.length < 80);
  assert.equal(socketOf(t, directory), socket);
});

test("a folder that somebody else prepared is not used", (t) => {
  const directory = join(folder(t), "a-rather-long-name-".repeat(6));
  const socket = socketOf(t, directory);
  removeSocketDirectory(socket);

  symlinkSync(folder(t), socket);
  assert.notEqual(socketOf(t, directory), socket, "a symbolic link");
  removeSocketDirectory(socket);

  mkdirSync(socket);
  assert.notEqual(socketOf(t, directory), socket, "a folder that others can enter");
});
