//! Webhooks of the caller's tenant: URLs that the server tells about its sandboxes.

mod view;

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::creation;
use crate::foundation::error::ApiError;
use crate::foundation::extensions::AuditedWebhook;
use crate::foundation::input::bad_id;
use crate::foundation::json::SmallJson;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use isolet_sandbox::SandboxId;
use isolet_webhook::{Error, NewAnswer, NewWebhook, WEBHOOKS_MAX};
use view::{CreateWebhook, CreatedWebhook, UpdateWebhook, WebhookTestView, WebhookView};

/// The answer of an idempotency key when the tenant has too many webhooks. It is not recorded.
const FULL: &str = "";

/// Create a webhook
///
/// The server sends an HTTP POST to the URL for each event, signed by the Standard Webhooks scheme, in
/// order and at least once. Only this answer and that of `POST /v1/webhooks/{webhook}/rotate` contain the
/// secret that verifies signatures. A tenant has at most 16 webhooks. The URL must lead to a public
/// address, unless the operator has allowed others.
#[utoipa::path(
    post, path = "/v1/webhooks", operation_id = "webhooks_create", tag = "webhooks",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body(content = CreateWebhook, example = json!({"url": "https://example.com/isolet", "events": ["sandbox.failed", "sandbox.destroyed"]})),
    responses(
        (status = 201, description = "The webhook was created.", body = CreatedWebhook, headers(("Location" = String, description = "The URL path of the new resource."), ("Idempotency-Replayed" = String, description = "`true` when an earlier request with the same `Idempotency-Key` created the resource.")))
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: SmallJson<CreateWebhook>,
) -> Result<Response, ApiError> {
    let once = creation::idempotency_key(&headers, "POST /v1/webhooks", &body.raw)?;
    let spec = NewWebhook::from(body.value);
    if let Some(id) = &spec.sandbox {
        SandboxId::parse(id).map_err(bad_id)?;
    }
    app.webhooks.check(&spec).await?;
    let tenant = caller.tenant.as_str().to_owned();
    let webhooks = app.webhooks.clone();
    let (id, replayed) = match once {
        None => (webhooks.create(&tenant, spec, None).await?, false),
        Some(once) => {
            let answer = NewAnswer { key: once.key.clone(), body: once.body };
            let work = async move {
                match webhooks.create(&tenant, spec, Some(answer)).await {
                    // A fleet has a limit for all tenants too, whose number then is not repeated.
                    Err(Error::TooMany(_)) => Ok(FULL.to_owned()),
                    done => done.map_err(|error| isolet_sandbox::Error::Fault(error.to_string())),
                }
            };
            app.service.once(&caller.tenant, &once, work).await?
        }
    };
    if id == FULL {
        return Err(Error::TooMany(WEBHOOKS_MAX).into());
    }
    let tenant = caller.tenant.as_str();
    let webhook = WebhookView::from(app.webhooks.get(tenant, &id)?);
    let secret = app.webhooks.first_secret(tenant, &id)?;
    let location = format!("/v1/webhooks/{id}");
    let mut response =
        creation::created(&location, replayed, Json(CreatedWebhook { secret, webhook }));
    response.extensions_mut().insert(AuditedWebhook(id));
    Ok(response)
}

/// List webhooks
///
/// Returns the webhooks of the caller's tenant without their secrets, oldest first. A read-only key sees
/// only scheme and host of their URLs, whose paths are secrets of many receivers.
#[utoipa::path(
    get, path = "/v1/webhooks", operation_id = "webhooks_list", tag = "webhooks",
    responses((status = 200, description = "The webhooks.", body = Vec<WebhookView>))
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller) -> Json<Vec<WebhookView>> {
    let all = app.webhooks.list(caller.tenant.as_str());
    Json(all.into_iter().map(|info| WebhookView::from(info).for_caller(&caller)).collect())
}

/// Get a webhook
///
/// Returns its settings, and how far its deliveries are.
#[utoipa::path(
    get, path = "/v1/webhooks/{webhook}", operation_id = "webhooks_get", tag = "webhooks",
    params(("webhook" = String, Path, description = "The id of the webhook.")),
    responses((status = 200, description = "The webhook.", body = WebhookView))
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<WebhookView>, ApiError> {
    let view = WebhookView::from(app.webhooks.get(caller.tenant.as_str(), &id)?);
    Ok(Json(view.for_caller(&caller)))
}

/// Change a webhook
///
/// Fields that the body leaves out stay as they are. While `enabled` is false nothing is sent; later, the
/// deliveries continue with the first event that was not delivered. A new URL, and `enabled: true`, also
/// end what the server has decided after failures, and the next attempt is made at once.
#[utoipa::path(
    patch, path = "/v1/webhooks/{webhook}", operation_id = "webhooks_update", tag = "webhooks",
    params(("webhook" = String, Path, description = "The id of the webhook.")),
    request_body(content = UpdateWebhook, example = json!({"enabled": true})),
    responses((status = 200, description = "The webhook.", body = WebhookView))
)]
pub(crate) async fn update(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    body: SmallJson<UpdateWebhook>,
) -> Result<Json<WebhookView>, ApiError> {
    let change = body.value.into();
    Ok(Json(app.webhooks.update(caller.tenant.as_str(), &id, change).await?.into()))
}

/// Delete a webhook
///
/// An attempt in progress ends, and events that were not delivered are dropped.
#[utoipa::path(
    delete, path = "/v1/webhooks/{webhook}", operation_id = "webhooks_delete", tag = "webhooks",
    params(("webhook" = String, Path, description = "The id of the webhook.")),
    responses((status = 204, description = "The webhook was deleted."))
)]
pub(crate) async fn remove(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    app.webhooks.remove(caller.tenant.as_str(), &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Rotate the secret of a webhook
///
/// Only this answer contains the new secret. For 24 hours both secrets sign each request, so that the
/// receiver can be changed without losing an event.
#[utoipa::path(
    post, path = "/v1/webhooks/{webhook}/rotate", operation_id = "webhooks_rotate", tag = "webhooks",
    params(("webhook" = String, Path, description = "The id of the webhook.")),
    responses((status = 200, description = "The webhook and its new secret.", body = CreatedWebhook))
)]
pub(crate) async fn rotate(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let (webhook, secret) = app.webhooks.rotate(caller.tenant.as_str(), &id).await?;
    Ok(Json(CreatedWebhook { secret, webhook: webhook.into() }).into_response())
}

/// Test a webhook
///
/// Sends one event `webhook.test` now, also if the webhook is disabled, and answers with the status of the
/// receiver. The test changes neither the counts nor the order of other events.
#[utoipa::path(
    post, path = "/v1/webhooks/{webhook}/test", operation_id = "webhooks_test", tag = "webhooks",
    params(("webhook" = String, Path, description = "The id of the webhook.")),
    responses((status = 200, description = "How the receiver answered.", body = WebhookTestView))
)]
pub(crate) async fn test(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<WebhookTestView>, ApiError> {
    Ok(Json(app.webhooks.test(caller.tenant.as_str(), &id).await?.into()))
}
