import assert from "node:assert/strict";
import { after, afterEach } from "node:test";
import { LifecycleApi } from "../../src/runtimes/opensandbox/lifecycle.ts";
import { defaultLimits } from "../../src/runtimes/opensandbox/opensandbox-runtime.ts";
import { OpenSandboxWorld } from "../support/opensandbox/world.ts";
import { sweep } from "./runtime.ts";

export const sandboxes = /^\/sandboxes$/;
export const one = /^\/sandboxes\/[^/]+$/;
export const command = /\/proxy\/44772\/command$/;

/** A world for a whole file, healed after each test, of which nothing is left in the end. */
export async function openStand() {
  const world = await OpenSandboxWorld.open();
  afterEach(() => {
    world.service.heal();
    world.service.apiKey = null;
    world.service.daemonToken = null;
  });
  after(async () => {
    try {
      await sweep(world.runtime);
      assert.equal(world.service.boxes.size, 0);
    } finally {
      await world.close();
    }
  });
  return {
    world,
    api: (url = world.service.url, apiKey: string | null = null) =>
      new LifecycleApi({ url, apiKey, useServerProxy: true }, { ...defaultLimits, firstDelayMs: 5 }),
  };
}
