/**
 * Finds many secrets in a stream of bytes in one pass, however many there are and wherever the stream is cut
 * (E15): an Aho-Corasick automaton. The work is a few steps a byte, whatever the secrets are.
 */
export interface SecretMatcher {
  /** A search of its own, at the beginning of a stream. */
  start(): SecretSearch;
}

export interface SecretSearch {
  /** Reads on. `found` gets each secret that ends in these bytes: the index after it, and its length. */
  read(bytes: Uint8Array, found: (end: number, length: number) => void): void;
  /** How many of the last bytes may be the beginning of a secret that goes on. */
  readonly open: number;
}

const none = -1;

/** The trie of the secrets. Nearly all of its nodes have one child, which is kept without a map. */
interface Trie {
  readonly byte: number[];
  readonly child: number[];
  readonly others: Map<number, Map<number, number>>;
  readonly depth: number[];
  /** The longest secret that ends here, or 0. */
  readonly length: number[];
  /** Where to go on when no child fits: the node of the longest proper suffix that is in the trie. */
  readonly back: number[];
}

export function secretMatcher(secrets: readonly Uint8Array[]): SecretMatcher {
  const trie: Trie = { byte: [none], child: [none], others: new Map(), depth: [0], length: [0], back: [0] };
  for (const secret of secrets) add(trie, secret);
  linkBack(trie);
  const first = Int32Array.from({ length: 256 }, (_, byte) => Math.max(0, childOf(trie, 0, byte)));
  const back = Int32Array.from(trie.back);
  const length = Int32Array.from(trie.length);
  const step = (node: number, byte: number) => (node === 0 ? (first[byte] ?? 0) : childOf(trie, node, byte));

  return {
    start() {
      let node = 0;
      return {
        get open() {
          return trie.depth[node] ?? 0;
        },
        read(bytes, found) {
          if (secrets.length === 0) return;
          let here = node;
          for (let at = 0; at < bytes.length; at += 1) {
            const byte = bytes[at] ?? 0;
            // Most bytes begin no secret.
            if (here === 0 && first[byte] === 0) continue;
            let next = step(here, byte);
            while (next === none) {
              here = back[here] ?? 0;
              next = step(here, byte);
            }
            here = next;
            const size = length[here] ?? 0;
            if (size > 0) found(at + 1, size);
          }
          node = here;
        },
      };
    },
  };
}

function childOf({ byte, child, others }: Trie, node: number, wanted: number): number {
  if (byte[node] === wanted) return child[node] ?? none;
  return others.size === 0 ? none : (others.get(node)?.get(wanted) ?? none);
}

function add(trie: Trie, secret: Uint8Array): void {
  let node = 0;
  for (const byte of secret) {
    let next = childOf(trie, node, byte);
    if (next === none) {
      next = trie.byte.length;
      trie.byte.push(none);
      trie.child.push(none);
      trie.depth.push((trie.depth[node] ?? 0) + 1);
      trie.length.push(0);
      trie.back.push(0);
      if (trie.child[node] === none) {
        trie.byte[node] = byte;
        trie.child[node] = next;
      } else {
        const more = trie.others.get(node) ?? new Map<number, number>();
        trie.others.set(node, more.set(byte, next));
      }
    }
    node = next;
  }
  trie.length[node] = secret.length;
}

/** Breadth first: what a node goes back to is less deep, so it is linked already. */
function linkBack(trie: Trie): void {
  const queue = [0];
  for (let head = 0; head < queue.length; head += 1) {
    const node = queue[head] ?? 0;
    for (const [byte, child] of childrenOf(trie, node)) {
      let from = node;
      let back = 0;
      while (from !== 0 && back === 0) {
        from = trie.back[from] ?? 0;
        back = Math.max(0, childOf(trie, from, byte));
      }
      trie.back[child] = back;
      trie.length[child] = Math.max(trie.length[child] ?? 0, trie.length[back] ?? 0);
      queue.push(child);
    }
  }
}

function childrenOf(trie: Trie, node: number): [number, number][] {
  const child = trie.child[node] ?? none;
  if (child === none) return [];
  return [[trie.byte[node] ?? none, child], ...(trie.others.get(node) ?? [])];
}
