import { phaseCommand } from "./phase-command.ts";

/** `holdfast-phase`, as `bin/holdfast-phase.mjs` starts it: the only place here that touches the process. */
process.exitCode = await phaseCommand(process.argv.slice(2), {
  env: process.env,
  stdout: (text) => process.stdout.write(text),
  stderr: (text) => process.stderr.write(text),
});
