import { phaseHelper } from "../../src/sandboxes/phase-helper.ts";

/** The helper as a program, for tests that run phases as processes. */
process.exitCode = await phaseHelper(process.argv.slice(2), {
  env: process.env,
  stdout: (text) => process.stdout.write(text),
  stderr: (text) => process.stderr.write(text),
});
