import { agentCommand } from "./agent-command.ts";

/** `holdfast-agent`, as `bin/holdfast-agent.mjs` starts it: the only place here that touches the process. */
const write = (stream: NodeJS.WriteStream) => (text: string | Uint8Array) =>
  new Promise<void>((resolve, reject) => {
    stream.write(text, (error) => (error ? reject(error) : resolve()));
  });

process.exitCode = await agentCommand(process.argv.slice(2), {
  env: process.env,
  directory: process.cwd(),
  say: write(process.stdout),
  complain: write(process.stderr),
  signals(listener) {
    const names = ["SIGTERM", "SIGINT", "SIGHUP"] as const;
    for (const name of names) process.on(name, listener);
    return () => {
      for (const name of names) process.off(name, listener);
    };
  },
});
