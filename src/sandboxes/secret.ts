/**
 * What must not be read in a sandbox's output (E15), documented in docs/reference/sandbox-contract.md: the
 * token, the secrets that the runtime resolves, and values of the job's own environment whose names say that
 * they are secret; each as it is, and as it looks after the usual encodings.
 */

/** Endings of environment names that mark a value as secret, whatever their case. */
export const secretNameEndings = [
  "TOKEN",
  "SECRET",
  "PASSWORD",
  "PASSWD",
  "PASSPHRASE",
  "KEY",
  "CREDENTIAL",
  "CREDENTIALS",
  "AUTH",
] as const;

/** A shorter value of the environment is more often a word than a secret: it would mask half of any text. */
export const environmentSecretLengthMin = 8;
/** A referenced secret is one by declaration; only what is hardly a value at all is left alone. */
const secretLengthMin = 4;
/** A part of an encoded secret, or one line of it, that is worth masking by itself. */
const partLengthMin = 8;
/** Longer ones (keys, bundles) are masked as they are and line by line, not in every encoding. */
const encodedLengthMax = 8192;
/** Where `base64`, MIME and PEM break their lines. */
const base64Widths = [76, 64] as const;

export function isSecretName(name: string): boolean {
  const upper = name.toUpperCase();
  return secretNameEndings.some((ending) => upper.endsWith(ending));
}

/** The values of an environment that are secret by their names. */
export function environmentSecrets(environment: Readonly<Record<string, string>>): string[] {
  return Object.entries(environment)
    .filter(([name, value]) => isSecretName(name) && value.length >= environmentSecretLengthMin)
    .map(([, value]) => value);
}

/** All the ways in which the secrets may show up, each once. */
export function secretForms(secrets: readonly string[]): Buffer[] {
  const forms = new Set<string>();
  for (const secret of secrets) {
    // A secret in a file often ends with a line break that is not part of it.
    for (const value of new Set([secret, secret.trim()])) {
      if (value.length < secretLengthMin) continue;
      forms.add(value);
      if (value.length <= encodedLengthMax) for (const form of encodings(value)) forms.add(form);
    }
    // A program that shows a key line by line, perhaps indented, shows it all the same.
    const lines = secret.split(/[\r\n]+/).map((line) => line.trim());
    if (lines.length > 1) {
      for (const line of lines) if (line.length >= partLengthMin) forms.add(line);
    }
  }
  return [...forms].map((form) => Buffer.from(form));
}

function encodings(value: string): string[] {
  const url = encodeURIComponent(value.toWellFormed());
  // Some encoders also escape what JavaScript leaves alone, and some leave slashes.
  const strict = url.replace(
    /[!'()*~]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  const urls = [url, strict, url.replaceAll("%2F", "/")].flatMap((text) => [
    text,
    text.replaceAll("%20", "+"),
  ]);
  return [
    JSON.stringify(value).slice(1, -1),
    ...urls,
    ...urls.map((text) => text.replace(/%[0-9A-F]{2}/g, (escape) => escape.toLowerCase())),
    ...base64Forms(Buffer.from(value)),
  ];
}

function base64Forms(bytes: Buffer): string[] {
  const whole = [bytes, Buffer.concat([bytes, Buffer.from("\n")])].map((value) => value.toString("base64"));
  const parts = [
    ...whole.flatMap((text) => base64Widths.flatMap((width) => pieces(text, width))),
    ...[0, 1, 2].map((before) => base64Within(bytes, before)),
  ].filter((text) => text.length >= partLengthMin);
  const standard = [...whole, ...whole.map((text) => text.replace(/=+$/, "")), ...parts];
  return standard.flatMap((text) => [text, text.replaceAll("+", "-").replaceAll("/", "_")]);
}

/** What of its base64 is the same whatever stands around it, when `before` bytes (modulo 3) come before it. */
function base64Within(bytes: Buffer, before: number): string {
  const text = Buffer.concat([Buffer.alloc(before), bytes]).toString("base64");
  return text.slice(Math.ceil((before * 8) / 6), Math.floor(((before + bytes.length) * 8) / 6));
}

function pieces(text: string, width: number): string[] {
  if (text.length <= width) return [];
  return Array.from({ length: Math.ceil(text.length / width) }, (_, n) =>
    text.slice(n * width, (n + 1) * width),
  );
}
