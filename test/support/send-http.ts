import { request as httpRequest, type IncomingHttpHeaders } from "node:http";
import { request as httpsRequest } from "node:https";

export interface HttpAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/**
 * One exchange with exactly these headers, which `fetch` would not let a test choose. Resolves with the first
 * complete answer, also when the server gives it before the body was sent.
 */
export function sendHttp(
  method: string,
  url: string,
  headers: Readonly<Record<string, string>>,
  body?: Uint8Array,
): Promise<HttpAnswer> {
  return new Promise((resolve, reject) => {
    const request = url.startsWith("https:") ? httpsRequest : httpRequest;
    const sent = request(url, { method, headers, agent: false }, (response) => {
      response.toArray().then(
        (chunks: Buffer[]) =>
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            body: Buffer.concat(chunks),
          }),
        reject,
      );
    });
    sent.on("error", reject);
    sent.end(body);
  });
}
