/** Webhooks: URLs that the server tells about the tenant's sandboxes. */

/** How far the deliveries of a webhook are. */
export interface WebhookDelivery {
  /** Events that the receiver has taken. */
  delivered: number;
  /** Entries of the audit log behind the last event that was delivered. */
  pending: number;
  /** Failed attempts in a row. */
  failures: number;
  /** Status of the last answer; `undefined`: there was none. */
  lastStatus: number | undefined;
  /** Why the last attempt failed; `undefined`: it did not. */
  lastError: string | undefined;
  lastAttempt: Date | undefined;
  /** `undefined`: with the next event. */
  nextAttempt: Date | undefined;
  /** Why the server has stopped the deliveries; `undefined`: it has not. */
  disabled: { reason: "failing" | "gone" | "key_changed"; at: Date } | undefined;
}

/** A webhook, without its secret. */
export interface Webhook {
  id: string;
  url: string;
  /** Names, and patterns such as `sandbox.*`. */
  events: string[];
  /** The only sandbox whose events it receives; `undefined`: all. */
  sandbox: string | undefined;
  /** The owner's name for it. */
  label: string;
  /** Whether its owner wants events. */
  enabled: boolean;
  createdAt: Date;
  /** Until when the secret before a rotation signs too. */
  previousSecretUntil: Date | undefined;
  delivery: WebhookDelivery;
}

/** A webhook with a new secret, which no other answer contains. */
export interface CreatedWebhook extends Webhook {
  secret: string;
}

/** Options of a new webhook. */
export interface CreateWebhookOptions {
  /** Names such as `"sandbox.failed"`, or patterns such as `"sandbox.*"`, the default. */
  events?: string[];
  /** Send the events of this sandbox only. */
  sandbox?: string;
  /** A name by which people recognise the webhook, at most 200 bytes. */
  label?: string;
}

/** Changes of a webhook. What is left out stays as it is. */
export interface UpdateWebhookOptions {
  url?: string;
  events?: string[];
  enabled?: boolean;
}

/** How a test of a webhook ended. */
export interface WebhookTest {
  /** Status of the receiver's answer; `undefined`: there was none. */
  status: number | undefined;
  /** Why the attempt failed; `undefined`: the receiver answered with 2xx. */
  error: string | undefined;
  durationMs: number;
}

/** The server's JSON of a webhook. */
export interface WebhookJson {
  id: string;
  url: string;
  events: string[];
  sandbox?: string | null;
  label: string;
  enabled: boolean;
  created_at_ms: number;
  previous_secret_until_ms?: number | null;
  delivery: {
    delivered: number;
    pending: number;
    failures: number;
    last_status?: number | null;
    last_error?: string | null;
    last_attempt_ms?: number | null;
    next_attempt_ms?: number | null;
    disabled?: { reason: "failing" | "gone" | "key_changed"; at_ms: number } | null;
  };
}

/** The server's JSON of a webhook with a new secret. */
export interface CreatedWebhookJson extends WebhookJson {
  secret: string;
}

/** The server's JSON of a test. */
export interface WebhookTestJson {
  status?: number | null;
  error?: string | null;
  duration_ms: number;
}

const time = (ms: number | null | undefined): Date | undefined => (ms == null ? undefined : new Date(ms));

/** URL path of a webhook. */
export function webhookPath(id: string): string {
  return `/v1/webhooks/${encodeURIComponent(id)}`;
}

/** Convert the server's JSON. */
export function webhook(json: WebhookJson): Webhook {
  const { delivery } = json;
  return {
    id: json.id,
    url: json.url,
    events: json.events,
    sandbox: json.sandbox ?? undefined,
    label: json.label,
    enabled: json.enabled,
    createdAt: new Date(json.created_at_ms),
    previousSecretUntil: time(json.previous_secret_until_ms),
    delivery: {
      delivered: delivery.delivered,
      pending: delivery.pending,
      failures: delivery.failures,
      lastStatus: delivery.last_status ?? undefined,
      lastError: delivery.last_error ?? undefined,
      lastAttempt: time(delivery.last_attempt_ms),
      nextAttempt: time(delivery.next_attempt_ms),
      disabled: delivery.disabled
        ? { reason: delivery.disabled.reason, at: new Date(delivery.disabled.at_ms) }
        : undefined,
    },
  };
}

/** Convert the server's JSON. */
export function webhookTest(json: WebhookTestJson): WebhookTest {
  return { status: json.status ?? undefined, error: json.error ?? undefined, durationMs: json.duration_ms };
}
