#!/usr/bin/env node
// The wrapper of an agent inside a sandbox. It starts at once: nothing is installed here.
import { startInSandbox } from "./launch/in-sandbox.mjs";

await startInSandbox("holdfast-agent", "sessions", "agent-program");
