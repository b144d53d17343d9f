//! The codes that errors carry, for the OpenAPI document.

/// An error code that the server answers with.
struct ErrorCode {
    code: &'static str,
    /// The statuses that it comes with, for readers.
    status: &'static str,
    meaning: &'static str,
}

const fn code(code: &'static str, status: &'static str, meaning: &'static str) -> ErrorCode {
    ErrorCode { code, status, meaning }
}

/// All codes, sorted. `tests/openapi` compares them with the codes in the sources.
const CODES: &[ErrorCode] = &[
    code(
        "agent_lost",
        "503",
        "The connection to the agent inside the sandbox broke. Get the state of the sandbox, then retry.",
    ),
    code(
        "agent_too_old",
        "409",
        "The agent inside the sandbox was started by an earlier version, and the call needs a newer one. Put the sandbox to sleep and wake it.",
    ),
    code("audit", "503", "The audit log cannot be read."),
    code("bad_answer", "502", "The program behind a port did not answer with valid HTTP."),
    code("bad_cwd", "400", "The working directory does not exist or cannot be entered."),
    code("bad_field", "400", "A field of the body or a header is invalid."),
    code("bad_files", "422", "The uploaded files are no archive that can be used."),
    code("bad_host", "421", "The `Host` header does not name this server."),
    code("bad_image", "400, 422", "The image name, or the image or archive itself, is invalid."),
    code("bad_link", "401", "The signed link is invalid, expired or withdrawn."),
    code("bad_method", "405", "The path exists but does not support the method."),
    code(
        "bad_node_answer",
        "502",
        "The node of the sandbox does not speak the protocol of this one.",
    ),
    code("bad_origin", "403", "Pages of this origin may not call this server."),
    code("bad_range", "416", "The range lies outside of the file."),
    code("bad_request", "400", "The request is malformed."),
    code("bad_ticket", "401", "The ticket was used, expired, or opens something else."),
    code("build_failed", "422", "The image could not be built. The message says why."),
    code("build_started", "409", "The steps of the build were already given."),
    code("builds_failed", "500", "The server failed to store a build."),
    code(
        "cannot_make_sandboxes",
        "503",
        "The host lacks something that is needed to create sandboxes.",
    ),
    code("class_unavailable", "422", "This server has no sandboxes of this class."),
    code("conflict", "409", "A call of E2B's dialect does not fit the state of the sandbox."),
    code("copy_failed", "500", "The files of a sandbox or a snapshot could not be copied."),
    code("deadline_exceeded", "408, 504", "The operation took too long. It may still complete."),
    code("default_session", "409", "The session `default` cannot be deleted."),
    code("denied", "403", "The user of the sandbox may not do this."),
    code("encoded_body", "415", "The body has a `Content-Encoding`; send it unencoded."),
    code("exists", "409", "Something with this path exists."),
    code("failed", "500", "The kernel refused the operation inside the sandbox."),
    code(
        "file_changed",
        "412",
        "The file is not the one that `If-Match` names. Read it again, and apply the change to its new content.",
    ),
    code("fleet_full", "503", "No node can take the sandbox. The message says what is missing."),
    code("fleet_unavailable", "503", "The records of the fleet cannot be read or written. Retry."),
    code("https_required", "400", "The request was sent without TLS to a server with TLS."),
    code("id_in_use", "409", "The id is taken."),
    code("idempotency_mismatch", "422", "The `Idempotency-Key` was used with another body."),
    code("image_denied", "403", "The registry refuses access to the image."),
    code("image_gone", "409", "The files of the image are missing. Pull or import it again."),
    code("image_in_use", "409", "A sandbox uses the image."),
    code("image_missing", "409", "The snapshot needs an image that the tenant does not have here."),
    code(
        "image_name_configured",
        "409",
        "The operator has configured what the name of an image stands for. Choose another name.",
    ),
    code("image_needs_more", "501", "The host lacks something that the image needs."),
    code(
        "image_not_copied",
        "503",
        "Another node has the image, and it could not be copied from there.",
    ),
    code("image_too_large", "413", "The image exceeds the limits of the server."),
    code("images_failed", "500", "The server failed to store an image."),
    code("internal_error", "500", "An unexpected failure. Only this call is affected."),
    code("invalid_request", "400, 403", "The request is invalid (Cloudflare dialect only)."),
    code("launch_failed", "500", "The sandbox could not be started. Nothing is left of it."),
    code(
        "link_token_in_use",
        "409",
        "Another key chose this token for a link to the port. Choose another token.",
    ),
    code("moving", "409", "The sandbox is being moved to another node already."),
    code("network_lost", "503", "The network of sandboxes is being restarted. Retry."),
    code("no_api_key", "404", "The tenant has no valid key with this id."),
    code("no_build", "404", "There is no such build."),
    code("no_client", "404", "The MCP client is unknown or was closed."),
    code("no_context", "404", "There is no such code context."),
    code("no_drain", "404", "The node has not been drained since its server started."),
    code(
        "no_files",
        "409",
        "A step copies files that were not uploaded, or that the server has removed.",
    ),
    code("no_image", "404", "There is no such image."),
    code("no_link", "404", "No link leads to the port."),
    code("no_name", "422", "The imported image has no name; give one."),
    code("no_network", "501", "The host lacks something that is needed for sandbox networks."),
    code("no_network_profile", "404", "There is no such network profile."),
    code("no_node", "404", "There is no such node."),
    code("no_process", "503", "The sandbox cannot start another process."),
    code("no_recording", "404", "There is no such recording."),
    code("no_route", "404", "There is no such path."),
    code("no_sandbox", "404", "There is no such sandbox."),
    code("no_session", "404", "There is no such session."),
    code("no_shell", "404", "The shell has ended."),
    code("no_snapshot", "404", "There is no such snapshot."),
    code("no_snapshot_store", "501", "The operator has configured no store for snapshots."),
    code("no_space", "507", "The disk of the sandbox or of the server is full."),
    code("no_stored_snapshot", "404", "The store has no such snapshot of the tenant."),
    code("no_such_process", "404", "There is no such process."),
    code(
        "no_target",
        "409",
        "The node or region cannot take the sandbox. The message says why; nothing was changed.",
    ),
    code("no_terminal", "404", "No terminal runs in the session."),
    code("no_webhook", "404", "There is no such webhook."),
    code("node_alive", "409", "The node holds its lease. Stop its server first."),
    code(
        "node_dead",
        "410",
        "The node of the sandbox was declared dead. `DELETE` frees the id of the sandbox.",
    ),
    code("node_not_dead", "409", "The node was not declared dead."),
    code(
        "node_owns_restorable",
        "409",
        "The node still owns sandboxes that can be restored from the object store; the message names them.",
    ),
    code("node_owns_sandboxes", "409", "The node still owns sandboxes."),
    code(
        "node_unreachable",
        "503",
        "The node of the sandbox cannot be reached. The message names it.",
    ),
    code("not_a_fleet", "422, 501", "The server is no node of a fleet."),
    code("not_built", "400, 501", "The field or call is known but not implemented."),
    code("not_empty", "409", "The directory is not empty."),
    code("not_found", "404", "There is no such file or directory."),
    code("not_in_image", "501", "The image lacks a program that is needed."),
    code("not_listening", "502", "No program listens on the port."),
    code(
        "not_movable",
        "422",
        "The sandbox cannot leave its node. The message says why; nothing was changed.",
    ),
    code(
        "not_moved",
        "503",
        "The other node did not take the sandbox. Nothing is lost; the message says where it is.",
    ),
    code("not_owner", "421", "Between nodes only: the node does not own the sandbox."),
    code("not_paused", "503", "A process did not stop. Nothing is paused. Retry."),
    code(
        "not_restored",
        "503",
        "The sandbox cannot be restored from the object store now. Its snapshot stays there.",
    ),
    code("not_yours", "403", "Only the tenant `default` may do this."),
    code("outside_scope", "403", "The path is invalid or outside of what the session may access."),
    code(
        "owner_moved",
        "503",
        "The sandbox has just moved to another node. Send the request again.",
    ),
    code("port_closed", "502", "The program closed the connection without an answer."),
    code("port_silent", "504", "The program did not answer in time."),
    code("process_ended", "409", "The process has ended, or has no open standard input."),
    code("process_lost", "410", "A sleep or crash of the sandbox ended the process."),
    code("queue_full", "429", "Too many commands or runs wait."),
    code("quota_exceeded", "507", "The files or the images of the tenant have reached its quota."),
    code("read_only", "403", "The key may only read."),
    code("registry_failed", "502", "The registry did not answer correctly."),
    code("registry_not_asked", "403", "The configuration does not allow this registry."),
    code("registry_slow", "504", "The registry took too long."),
    code(
        "resource_exhausted",
        "503",
        "Memory or file descriptors are temporarily exhausted. Retry.",
    ),
    code("restoring", "503", "The sandbox is being restored from the object store. Retry."),
    code("sandbox_destroyed", "409", "The sandbox was deleted during the call."),
    code("sandbox_exists", "409", "The id of the sandbox is taken."),
    code("sandbox_failed", "409", "The sandbox has failed. Recover or delete it."),
    code("sandbox_in_use", "409", "A command runs or a client is attached."),
    code("sandbox_paused", "409", "The sandbox is paused, and this call does not resume it."),
    code("sandbox_sleeping", "409", "The sandbox sleeps, and this call does not wake it."),
    code("sandbox_slept", "409", "The sandbox was put to sleep by force during the call."),
    code(
        "sandbox_unreachable",
        "503",
        "The agent of the sandbox does not answer; the server keeps retrying.",
    ),
    code(
        "scope_blocked",
        "409",
        "A path in the `file_access` of the session was replaced by something else.",
    ),
    code("server_full", "503", "The server cannot hold more sandboxes or connections."),
    code("session_ended", "409", "The session was deleted during the call."),
    code("session_exists", "409", "The id of the session is taken."),
    code("snapshot_exists", "409", "There is a snapshot with this name."),
    code("snapshot_in_use", "409", "Sandboxes are being created from the snapshot."),
    code("snapshot_incompatible", "409", "The snapshot cannot be restored into this sandbox."),
    code(
        "snapshot_store_failed",
        "502",
        "The store of snapshots failed, or its contents are damaged.",
    ),
    code("stopping", "503", "The server is shutting down. Sandboxes stay. Retry."),
    code("storage_error", "503", "The records cannot be read or written. Nothing was changed."),
    code("store_broken", "503", "The disk that holds the records has failed."),
    code("store_full", "507", "The disk that holds the records is full. Nothing was changed."),
    code(
        "suspended",
        "503",
        "The node of the sandbox lost its lease, and another node may own the sandbox. Retry.",
    ),
    code("too_large", "413", "The body, message or file is too large."),
    code("too_many", "429", "A limit of the sandbox is reached."),
    code("too_many_builds", "429", "Too many builds of the tenant have not ended."),
    code("too_many_clients", "429", "Too many MCP clients are connected."),
    code("too_many_connections", "429", "The tenant holds too many connections."),
    code(
        "too_many_idempotency_keys",
        "429",
        "The tenant has too many stored answers of idempotency keys.",
    ),
    code("too_many_imports", "429", "Too many imports are in progress."),
    code("too_many_keys", "429", "The tenant has too many API keys."),
    code("too_many_links", "429", "Links lead to too many ports of the sandbox."),
    code("too_many_names", "409", "The image has as many names as it may have."),
    code("too_many_network_profiles", "429", "The tenant has too many network profiles."),
    code(
        "too_many_not_found",
        "429",
        "The caller received too many 401 and 404 answers. Wait before retrying.",
    ),
    code("too_many_recordings", "429", "The sandbox has too many recordings."),
    code("too_many_sandboxes", "429", "The tenant has too many sandboxes."),
    code("too_many_sessions", "429", "The sandbox has too many sessions."),
    code("too_many_snapshots", "429", "The tenant has as many snapshots as it may have."),
    code("too_many_tickets", "429", "Too many unused tickets exist."),
    code("too_many_transfers", "429", "The tenant has too many pushes and pulls at once."),
    code("too_many_webhooks", "429", "The tenant has as many webhooks as it may have."),
    code(
        "too_much_memory",
        "429",
        "Requests or unread answers of the tenant hold as much memory as they may. Read the answers, or retry.",
    ),
    code(
        "too_slow",
        "410",
        "The client read the event stream too slowly. Reconnect with `Last-Event-ID`.",
    ),
    code("unauthorized", "401", "The request carries no valid key."),
    code("unsupported", "400", "This machine lacks what the field needs."),
    code("upgrade_required", "426", "The route needs a WebSocket upgrade."),
    code(
        "version_expired",
        "410",
        "The changes since the version are not known any more. Take the version `now`, then list the directory.",
    ),
    code("webhook_busy", "429", "A test of the webhook runs, or too many deliveries. Retry."),
    code(
        "webhook_key",
        "501, 503",
        "The server cannot sign webhooks: its key is missing, or is another one.",
    ),
    code(
        "workspace_read_not_found",
        "404",
        "There is no such sandbox or file (Cloudflare dialect only).",
    ),
    code("wrong_kind", "409", "A file is where a directory is needed, or the reverse."),
];

/// A Markdown table of all codes.
pub(super) fn table() -> String {
    let mut table = "| code | status | meaning |\n|---|---|---|\n".to_owned();
    for ErrorCode { code, status, meaning } in CODES {
        table.push_str(&format!("| `{code}` | {status} | {meaning} |\n"));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_and_unique() {
        assert!(CODES.is_sorted_by(|one, next| one.code < next.code));
    }
}
