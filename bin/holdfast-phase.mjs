#!/usr/bin/env node
// The helper inside a sandbox. It starts at once: nothing is installed here.
import { startInSandbox } from "./launch/in-sandbox.mjs";

await startInSandbox("holdfast-phase", "sandboxes", "phase-helper");
