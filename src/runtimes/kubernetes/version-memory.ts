const entriesMax = 10_000;

/** The newest version seen of each object, the least recently seen forgotten first. Only ever a hint. */
export class VersionMemory {
  readonly #versions = new Map<string, string>();

  get(uid: string): string | null {
    return this.#versions.get(uid) ?? null;
  }

  note(uid: string, version: string): void {
    this.#versions.delete(uid);
    this.#versions.set(uid, version);
    if (this.#versions.size <= entriesMax) return;
    for (const oldest of this.#versions.keys()) {
      this.#versions.delete(oldest);
      return;
    }
  }

  forget(uid: string): void {
    this.#versions.delete(uid);
  }
}
