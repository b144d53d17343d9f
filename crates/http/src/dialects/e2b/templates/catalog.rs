//! The templates of a tenant: the images that were made here, by their names.

use super::BUILD_LABEL;
use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::error::E2bError;
use crate::dialects::e2b::sandboxes::create::is_default_template;
use crate::dialects::e2b::sandboxes::snapshots;
use crate::foundation::error::ApiError;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use isolet_build::BuildInfo;
use isolet_clock::rfc3339;
use isolet_sandbox::SnapshotId;
use isolet_sandbox::image::{Image, Origin, Reference};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The tag of a name without one, and the word of E2B for it.
const LATEST: &str = "latest";
const DEFAULT: &str = "default";
/// What complete names of templates begin with.
const COMPLETE: &str = "docker.io/library/";
const DOCKER: &str = "docker.io/";
/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 128;

/// A name of a template with a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TemplateName {
    pub(super) name: String,
    pub(super) tag: String,
}

impl TemplateName {
    /// Parses `name` or `name:tag`.
    ///
    /// # Errors
    /// 400.
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let colon = text.rfind(':').filter(|at| !text[*at..].contains('/'));
        let (name, tag) = match colon {
            Some(at) => (&text[..at], &text[at + 1..]),
            None => (text, LATEST),
        };
        let tag = if tag == DEFAULT { LATEST } else { tag };
        let parsed = Self { name: name.to_owned(), tag: tag.to_owned() };
        let is_too_long = text.len() > NAME_BYTES_MAX;
        if name.is_empty() || is_too_long || Reference::parse(&parsed.text()).is_err() {
            let reason = "a name of lower-case letters, digits, dots, dashes and underscores, and a tag of letters, digits, dots, dashes and underscores";
            return Err(ApiError::bad_field("name", reason));
        }
        Ok(parsed)
    }

    /// The same template with another tag.
    pub(super) fn with_tag(&self, tag: &str) -> Result<Self, ApiError> {
        let bad = tag.is_empty() || tag.contains([':', '/', '@']);
        if bad {
            return Err(ApiError::bad_field("tags", "letters, digits, dots, dashes, underscores"));
        }
        Self::parse(&format!("{}:{tag}", self.name))
    }

    /// The name of the image.
    pub(crate) fn text(&self) -> String {
        format!("{}:{}", self.name, self.tag)
    }
}

/// The name of the image that a client names as a template.
pub(crate) fn image_name(template: &str) -> String {
    match template.strip_suffix(":default") {
        Some(name) => format!("{name}:{LATEST}"),
        None => template.to_owned(),
    }
}

/// A template with its tags.
pub(super) struct Found {
    pub(super) name: String,
    pub(super) tags: BTreeMap<String, Arc<Image>>,
}

impl Found {
    /// The image with the tag that a name without one stands for, or the newest.
    fn main(&self) -> Option<&Arc<Image>> {
        let newest = || self.tags.values().max_by_key(|image| image.pulled_at_ms);
        self.tags.get(LATEST).or_else(newest)
    }

    fn earliest_ms(&self) -> i64 {
        self.tags.values().map(|image| image.pulled_at_ms).min().unwrap_or_default()
    }

    fn latest_ms(&self) -> i64 {
        self.tags.values().map(|image| image.pulled_at_ms).max().unwrap_or_default()
    }
}

/// The id of the build of an image, or one that is made of its digest.
pub(super) fn build_id(image: &Image) -> String {
    if let Some(id) = image.labels.get(BUILD_LABEL) {
        return id.clone();
    }
    let hex = image.digest.trim_start_matches("sha256:");
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or("0");
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}

/// The templates of a caller, by name.
pub(super) fn templates(app: &App, caller: &Caller) -> Vec<Found> {
    let tenant = caller.tenant.as_str();
    let mut all: BTreeMap<String, Found> = BTreeMap::new();
    for image in app.service.images(&caller.tenant) {
        if image.origin(tenant) == Origin::Registry {
            continue;
        }
        for name in image.names.get(tenant).into_iter().flatten() {
            let Some((whole, tag)) = name.rsplit_once(':').filter(|_| !name.contains('@')) else {
                continue;
            };
            let short = whole.strip_prefix(COMPLETE).or_else(|| whole.strip_prefix(DOCKER));
            let short = short.unwrap_or(whole).to_owned();
            let found = all.entry(short.clone());
            let found = found.or_insert_with(|| Found { name: short, tags: BTreeMap::new() });
            found.tags.insert(tag.to_owned(), Arc::clone(&image));
        }
    }
    all.into_values().collect()
}

/// One template, by its name; a tag in it does not count.
///
/// # Errors
/// 404.
pub(super) fn template(app: &App, caller: &Caller, text: &str) -> Result<Found, ApiError> {
    let name = TemplateName::parse(text).map_err(|_| missing(text))?.name;
    let mut all = templates(app, caller).into_iter();
    all.find(|found| found.name == name).ok_or_else(|| missing(text))
}

/// Whether there is a template of this name, and has the tag if the name contains one.
fn has_template(app: &App, caller: &Caller, text: &str) -> bool {
    let Ok(found) = template(app, caller, text) else { return false };
    text == found.name
        || TemplateName::parse(text).is_ok_and(|wanted| found.tags.contains_key(&wanted.tag))
}

/// 404.
pub(super) fn missing(text: &str) -> ApiError {
    let shown: String = text.chars().take(64).collect();
    let message = format!("there is no template {shown:?}");
    let hint = "build it, or list the templates";
    ApiError::new(StatusCode::NOT_FOUND, "no_image", message, hint)
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AliasView {
    #[serde(rename = "templateID")]
    template_id: String,
    public: bool,
}

/// Whether a sandbox can be created from a name.
pub(super) async fn alias(
    State(app): State<App>,
    caller: Caller,
    Path(alias): Path<String>,
) -> Result<Json<AliasView>, E2bError> {
    let snapshot = SnapshotId::parse(&alias).ok();
    let is_snapshot = snapshot.is_some_and(|id| app.service.snapshot(&caller.tenant, &id).is_ok());
    let is_known = is_default_template(&alias)
        || is_snapshot
        || app.service.find_image(&caller.tenant, &image_name(&alias)).is_ok()
        || has_template(&app, &caller, &alias);
    if !is_known {
        return Err(missing(&alias).into());
    }
    Ok(Json(AliasView { template_id: alias, public: false }))
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TemplateView {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "buildID")]
    build_id: String,
    cpu_count: u64,
    #[serde(rename = "memoryMB")]
    memory_mb: u64,
    #[serde(rename = "diskSizeMB")]
    disk_size_mb: u64,
    public: bool,
    aliases: Vec<String>,
    names: Vec<String>,
    created_at: String,
    updated_at: String,
    created_by: Option<()>,
    last_spawned_at: Option<String>,
    spawn_count: u64,
    build_count: usize,
    envd_version: &'static str,
    build_status: &'static str,
}

/// Lists the templates of the caller.
pub(super) async fn list(State(app): State<App>, caller: Caller) -> Json<Vec<TemplateView>> {
    let limits = app.service.default_limits();
    let all = templates(&app, &caller).into_iter().map(|found| TemplateView {
        build_id: found.main().map(|image| build_id(image)).unwrap_or_default(),
        cpu_count: limits.cpu_millis.div_ceil(1000),
        memory_mb: limits.memory_mib,
        disk_size_mb: limits.disk_mib,
        public: false,
        aliases: vec![found.name.clone()],
        names: vec![found.name.clone()],
        created_at: rfc3339(found.earliest_ms()),
        updated_at: rfc3339(found.latest_ms()),
        created_by: None,
        last_spawned_at: None,
        spawn_count: 0,
        build_count: found.tags.len(),
        envd_version: crate::dialects::e2b::sandboxes::view::DAEMON_VERSION,
        build_status: "ready",
        template_id: found.name,
    });
    Json(all.collect())
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BuildOfTemplate {
    #[serde(rename = "buildID")]
    build_id: String,
    status: &'static str,
    created_at: String,
    updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<String>,
    cpu_count: u64,
    #[serde(rename = "memoryMB")]
    memory_mb: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TemplateWithBuilds {
    #[serde(rename = "templateID")]
    template_id: String,
    public: bool,
    aliases: Vec<String>,
    names: Vec<String>,
    created_at: String,
    updated_at: String,
    last_spawned_at: Option<String>,
    spawn_count: u64,
    builds: Vec<BuildOfTemplate>,
}

/// Whether a build is one of a template.
pub(super) fn is_build_of(build: &BuildInfo, name: &str) -> bool {
    build.names.iter().any(|own| {
        let whole = own.rsplit_once(':').map_or(own.as_str(), |(whole, _)| whole);
        let short = whole.strip_prefix(COMPLETE).or_else(|| whole.strip_prefix(DOCKER));
        short.unwrap_or(whole) == name
    })
}

/// A template with its builds.
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(text): Path<String>,
) -> Result<Json<TemplateWithBuilds>, E2bError> {
    let found = template(&app, &caller, &text)?;
    let limits = app.service.default_limits();
    let own = app.builder.list(&caller.tenant);
    let own = own.into_iter().filter(|build| is_build_of(build, &found.name));
    let builds = own.map(|build| BuildOfTemplate {
        status: super::builds::status_word(&build.state),
        created_at: rfc3339(build.created_at_ms),
        updated_at: rfc3339(build.ended_at_ms.unwrap_or(build.created_at_ms)),
        finished_at: build.ended_at_ms.map(rfc3339),
        cpu_count: limits.cpu_millis.div_ceil(1000),
        memory_mb: limits.memory_mib,
        build_id: build.id,
    });
    Ok(Json(TemplateWithBuilds {
        builds: builds.collect(),
        public: false,
        aliases: vec![found.name.clone()],
        names: vec![found.name.clone()],
        created_at: rfc3339(found.earliest_ms()),
        updated_at: rfc3339(found.latest_ms()),
        last_spawned_at: None,
        spawn_count: 0,
        template_id: found.name,
    }))
}

/// Deletes a template with all its tags, or a snapshot, which is a template for E2B.
pub(super) async fn delete(
    state: State<App>,
    caller: Caller,
    Path(text): Path<String>,
) -> Result<StatusCode, E2bError> {
    let app = &state.0;
    let snapshot = SnapshotId::parse(&text).ok();
    if snapshot.is_some_and(|id| app.service.snapshot(&caller.tenant, &id).is_ok()) {
        return snapshots::delete(state, caller, Path(text)).await;
    }
    let found = template(app, &caller, &text)?;
    for tag in found.tags.keys() {
        app.service.remove_image(&caller.tenant, &format!("{}:{tag}", found.name)).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_tag() {
        for (text, name, tag) in [
            ("tools", "tools", "latest"),
            ("tools:1", "tools", "1"),
            ("tools:default", "tools", "latest"),
            ("team/tools:v1.0", "team/tools", "v1.0"),
        ] {
            let parsed = TemplateName::parse(text).unwrap();
            assert_eq!((parsed.name.as_str(), parsed.tag.as_str()), (name, tag), "{text}");
        }
        for bad in ["", ":1", "tools:", "To ols", "tools:a:b", &"x".repeat(129)] {
            assert!(TemplateName::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(image_name("tools:default"), "tools:latest");
        assert_eq!(image_name("host"), "host");
        let name = TemplateName::parse("tools:1").unwrap();
        assert_eq!(name.with_tag("2").unwrap().text(), "tools:2");
        for bad in ["", ":x", "a:", "a/b", "a b"] {
            assert!(name.with_tag(bad).is_err(), "{bad}");
        }
    }
}
