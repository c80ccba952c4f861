import type { TenantId } from "../core/ids.ts";
import type { WorkDefinition } from "./define.ts";

/** A program's way to its Work, from `openWork`. What is behind it is nobody's business outside. */
export interface Work {
  readonly name: string;
  /** The tenant of every submission that names no other. */
  readonly tenant: TenantId | null;
  /** Make versions known before the first worker of them starts (W2). */
  register(...works: readonly WorkDefinition<never>[]): Promise<void>;
  /** Tell the workers to look, after the commit of a transaction that submitted: it can't know its own commit. */
  wake(): void;
  close(): Promise<void>;
}
