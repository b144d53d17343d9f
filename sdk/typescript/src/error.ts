/** Errors of the SDK. */

/** The server answered with an error or could not be reached, or an argument is invalid. */
export class IsoletError extends Error {
  /**
   * @param status HTTP status; 0 without a response.
   * @param code machine-readable and stable across server versions, for example `no_session`.
   * @param message what happened, and to which id.
   * @param hint what to do next; may be empty.
   * @param options `cause`: the underlying error.
   */
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string = "",
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = "IsoletError";
  }
}

/** Wait for a `DELETE`, and ignore 404: the object was already deleted. */
export async function ignoreNotFound(deleted: Promise<unknown>): Promise<void> {
  try {
    await deleted;
  } catch (error) {
    if (!(error instanceof IsoletError && error.status === 404)) throw error;
  }
}

/** Convert an error response to an error. */
export async function errorFromResponse(response: Response): Promise<IsoletError> {
  const text = await response.text().catch(() => "");
  try {
    const body = JSON.parse(text) as { error?: string; message?: string; hint?: string };
    return new IsoletError(response.status, body.error ?? "unknown", body.message ?? text, body.hint);
  } catch {
    return new IsoletError(response.status, "unknown", text || response.statusText);
  }
}
