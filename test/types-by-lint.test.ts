import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { test } from "node:test";

const root = resolve(import.meta.dirname, "..");

/** One mistake or more of each kind that our settings forbid. */
const planted = `import { Missing } from "./absent.ts";
import { Shape } from "./shape.ts";
enum Color { Red }
namespace Space { export const one = 1; }
export function add(a: string, unused: number): number {
  const never = 1;
  return a;
}
class Base { run(): void {} }
export class Child extends Base { run(): void {} }
export const exact: { readonly a?: string } = { a: undefined };
export const first: string = [""][0];
export const fall = (x: number) => { switch (x) { case 1: console.log(1); case 2: return 2; } return 3; };
export type Used = Shape;
export const title = document.title;
export const implicit = (x) => x;
// @ts-expect-error nothing is wrong here
export const fine = 1;
`;

test("what the compiler refuses, the check of types that lints along refuses at the same places", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "holdfast-types-"));
  t.after(() => rm(folder, { recursive: true }));
  const write = (name: string, content: string) => writeFile(join(folder, name), content);
  await symlink(join(root, "node_modules"), join(folder, "node_modules"), "junction");
  await write("shape.ts", "export interface Shape { readonly side: number }\n");
  const names = ["planted.ts", "planted.sql.ts"];
  for (const name of names) await write(name, planted);
  const settings = { extends: join(root, "tsconfig.json"), include: ["*.ts"], exclude: [] };
  await write("tsconfig.json", JSON.stringify({ ...settings, compilerOptions: { incremental: false } }));
  const said = (program: string, ...words: string[]) => {
    const path = join(root, "node_modules", ".bin", program);
    const { stdout } = spawnSync(path, words, { cwd: folder, encoding: "utf8", timeout: 60_000 });
    const found = stdout.matchAll(/^(planted[.a-z]*)[(:](\d+)[,:](\d+)\)?:.*?\b(TS\d+)\b/gm);
    return [...new Set(Array.from(found, ([, ...place]) => place.join(" ")))].toSorted();
  };
  const compiler = said("tsc", "--pretty", "false", "--project", ".");
  const config = join(root, ".oxlintrc.json");
  const lint = said("oxlint", "--config", config, "--type-aware", "--type-check", "-f", "unix", ...names);
  assert.ok(compiler.length >= 30, compiler.join("\n"));
  assert.deepEqual(lint, compiler);
});
