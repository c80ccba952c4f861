import { BlockList, isIP, isIPv4, isIPv6 } from "node:net";

/** A network by its address and prefix length, such as 10.0.0.0/8. */
export interface Network {
  readonly address: string;
  readonly prefix: number;
}

/** IPv4 that is not the public internet: this host, private, shared, link-local, documentation, multicast. */
const reserved4: readonly (readonly [string, number])[] = [
  ["0.0.0.0", 8],
  ["10.0.0.0", 8],
  ["100.64.0.0", 10],
  ["127.0.0.0", 8],
  ["169.254.0.0", 16],
  ["172.16.0.0", 12],
  ["192.0.0.0", 24],
  ["192.0.2.0", 24],
  ["192.31.196.0", 24],
  ["192.52.193.0", 24],
  ["192.88.99.0", 24],
  ["192.168.0.0", 16],
  ["192.175.48.0", 24],
  ["198.18.0.0", 15],
  ["198.51.100.0", 24],
  ["203.0.113.0", 24],
  ["224.0.0.0", 3],
];
/** Of IPv6 only 2000::/3 is the public internet, without these: tunnels that carry IPv4, and documentation. */
const reserved6: readonly (readonly [string, number])[] = [
  ["2001::", 23],
  ["2001:db8::", 32],
  ["2002::", 16],
  ["2620:4f:8000::", 48],
  ["3fff::", 20],
];

const notPublic4 = listOf(reserved4.map(([address, prefix]) => ({ address, prefix })));
const notPublic6 = listOf(reserved6.map(([address, prefix]) => ({ address, prefix })));
const public6 = listOf([{ address: "2000::", prefix: 3 }]);

function listOf(networks: readonly Network[]): BlockList {
  const list = new BlockList();
  for (const { address, prefix } of networks) {
    list.addSubnet(address, prefix, isIPv4(address) ? "ipv4" : "ipv6");
  }
  return list;
}

/** Throws an error whose message continues a key's name. */
export function parseNetwork(text: string): Network {
  const [, address = "", length] = /^([0-9A-Fa-f.:]+)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const bits = isIP(address) === 4 ? 32 : 128;
  const prefix = length === undefined ? bits : Number(length);
  if (isIP(address) !== 0 && prefix <= bits) return { address, prefix };
  throw new Error(`must be networks such as 10.1.0.0/16 or fd00::/8, with commas between them`);
}

/** Whether an address is in one of these networks. A mapped address is judged as the IPv4 one that it is. */
export function networkCheck(networks: readonly Network[]): (address: string) => boolean {
  const list = listOf(networks);
  return (address) => {
    const plain = unmapped(address);
    if (isIPv4(plain)) return list.check(plain, "ipv4");
    return isIPv6(plain) && !plain.includes("%") && list.check(plain, "ipv6");
  };
}

/** Whether an address may be connected to: public and written as itself, or in a configured network. */
export function addressCheck(configured: readonly Network[]): (address: string) => boolean {
  const isConfigured = networkCheck(configured);
  return (address) => isConfigured(address) || isPublic(address);
}

function isPublic(address: string): boolean {
  if (isIPv4(address)) return !notPublic4.check(address, "ipv4");
  if (!isIPv6(address) || address.includes("%")) return false;
  return public6.check(address, "ipv6") && !notPublic6.check(address, "ipv6");
}

/** `::ffff:127.0.0.1`, however it is written, as `127.0.0.1`; anything else as it is. */
function unmapped(address: string): string {
  if (!isIPv6(address) || address.includes("%")) return address;
  const canonical = new URL(`http://[${address}]/`).hostname;
  const [, high, low] = /^\[::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})\]$/.exec(canonical) ?? [];
  if (high === undefined || low === undefined) return address;
  const bytes = [Number.parseInt(high, 16), Number.parseInt(low, 16)].flatMap((part) => [
    part >> 8,
    part & 255,
  ]);
  return bytes.join(".");
}
