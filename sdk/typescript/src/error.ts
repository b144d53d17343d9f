/** What a call is refused with. */

/** The server refused a call, or could not be reached. */
export class IsoletError extends Error {
  /** @param status HTTP status; 0 when there was no answer.
   *  @param code for programs, as `no_session`; stays the same between versions.
   *  @param hint what to do next. */
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

/** Waits for a `DELETE`; what is not there any more was deleted. */
export async function gone(deleted: Promise<unknown>): Promise<void> {
  try {
    await deleted;
  } catch (error) {
    if (!(error instanceof IsoletError && error.status === 404)) throw error;
  }
}

/** Reads an answer that is not 2xx. */
export async function refusal(response: Response): Promise<IsoletError> {
  const text = await response.text().catch(() => "");
  try {
    const said = JSON.parse(text) as { error?: string; message?: string; hint?: string };
    return new IsoletError(response.status, said.error ?? "unknown", said.message ?? text, said.hint);
  } catch {
    return new IsoletError(response.status, "unknown", text || response.statusText);
  }
}
