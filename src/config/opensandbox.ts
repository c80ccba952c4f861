const name = /^(\*\.)?[A-Za-z0-9]([-.A-Za-z0-9]{0,251}[A-Za-z0-9])?$/;
const address = /^[0-9A-Fa-f.:]{2,45}(\/\d{1,3})?$/;

/** Hosts that sandboxes may reach: names, `*.` before one, or addresses, with commas between them. */
export function egressTargets(text: string): readonly string[] {
  return text.split(",").map((part) => {
    const target = part.trim();
    if (name.test(target) || address.test(target)) return target;
    throw new Error(
      `must be host names or addresses with commas between them, found ${JSON.stringify(target.slice(0, 60))}`,
    );
  });
}
