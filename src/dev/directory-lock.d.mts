/** Null when no such process lives; otherwise a text that no other process, before or after, shares. */
export function processIdentity(pid: number): string | null;

export interface DirectoryLock {
  readonly release: () => void;
}

/** Takes the lock, waiting at most `waitMs` for another holder, or gives the pid of the process that has it. */
export function lockDirectory(
  directory: string,
  options?: {
    readonly name?: string;
    readonly waitMs?: number;
    readonly onWait?: (owner: number) => void;
  },
): Promise<DirectoryLock | { readonly heldBy: number }>;
