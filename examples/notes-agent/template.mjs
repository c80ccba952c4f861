// Prints agent.yaml with this folder filled in, for `holdfast agent apply -`. Plain JavaScript, for any Node.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const place = (name) => fileURLToPath(new URL(name, import.meta.url));
const template = readFileSync(place("agent.yaml"), "utf8");
// A string of JSON is one of YAML, whatever the folder is called; a function's result is taken as it is.
process.stdout.write(template.replace(/"\$\{example\}\/([^"]+)"/g, (_, name) => JSON.stringify(place(name))));
