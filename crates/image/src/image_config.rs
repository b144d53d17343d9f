//! Image configurations: the environment, working directory, user and layers that an image names.

use crate::disk::rooted::parts;
use crate::error::Error;
use crate::manifest::{digest, shorten};
use crate::platform::Platform;
use crate::reference::Digest;
use oci_spec::image::{ImageConfiguration, Os};
use std::collections::BTreeMap;

/// The label of an image whose `/workspace` is the first content of workspaces.
pub(crate) const WORKSPACE_LABEL: &str = "io.isolet.workspace";

/// Maximum size of all names and values of an image's labels together, in bytes.
pub const LABELS_BYTES_MAX: usize = 64 * 1024;
/// Maximum size of all names and values of an image's environment together, in bytes.
const ENV_BYTES_MAX: usize = 128 * 1024;

/// The checked part of an image configuration that sandboxes use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ImageConfig {
    /// Digests of the uncompressed layers, the lowest layer first.
    pub(crate) diff_ids: Vec<Digest>,
    pub(crate) env: BTreeMap<String, String>,
    /// Absolute, without `.` and `..`.
    pub(crate) cwd: Option<String>,
    pub(crate) user: String,
    /// Whether `/workspace` is the first content of workspaces.
    pub(crate) workspace: bool,
    /// All labels but that of the workspace; none if they are too large.
    pub(crate) labels: BTreeMap<String, String>,
}

impl ImageConfig {
    /// Parses the configuration of an image with this number of layers.
    ///
    /// # Errors
    /// [`Error::Bad`], [`Error::TooLarge`].
    pub(crate) fn read(bytes: &[u8], layers: usize, platform: &Platform) -> Result<Self, Error> {
        let raw: ImageConfiguration = serde_json::from_slice(bytes)
            .map_err(|error| Error::bad(format!("its configuration cannot be parsed: {error}")))?;
        if *raw.os() != Os::Linux || raw.architecture().to_string() != platform.architecture {
            let built_for = shorten(&format!("{}/{}", raw.os(), raw.architecture()));
            return Err(Error::bad(format!("it is built for {built_for}, not for {platform}")));
        }
        let ids = raw.rootfs().diff_ids();
        if ids.len() != layers {
            return Err(Error::bad(format!(
                "its manifest lists {layers} layers, but its configuration {}",
                ids.len()
            )));
        }
        let settings = raw.config().clone().unwrap_or_default();
        let working_dir = settings.working_dir().as_deref().filter(|cwd| !cwd.is_empty());
        Ok(Self {
            diff_ids: ids.iter().map(|id| digest(id)).collect::<Result<_, _>>()?,
            env: env(settings.env().as_deref().unwrap_or_default())?,
            cwd: working_dir.map(cwd).transpose()?,
            user: settings.user().clone().unwrap_or_default(),
            workspace: settings
                .labels()
                .as_ref()
                .and_then(|labels| labels.get(WORKSPACE_LABEL))
                .is_some_and(|value| value == "true"),
            labels: labels(settings.labels().iter().flatten()),
        })
    }
}

/// The labels that are recorded. Nothing here depends on those of an image with too many.
fn labels<'a>(all: impl Iterator<Item = (&'a String, &'a String)>) -> BTreeMap<String, String> {
    let all: BTreeMap<String, String> = all
        .filter(|(name, _)| *name != WORKSPACE_LABEL)
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let bytes: usize = all.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > LABELS_BYTES_MAX { BTreeMap::new() } else { all }
}

fn env(all: &[String]) -> Result<BTreeMap<String, String>, Error> {
    if all.iter().map(|one| one.len() + 1).sum::<usize>() > ENV_BYTES_MAX {
        return Err(Error::large("its environment", format!("{ENV_BYTES_MAX} bytes")));
    }
    let one = |text: &String| match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !text.contains('\0') => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err(Error::bad(format!(
            "its environment contains {:?}, which is not NAME=VALUE",
            shorten(text)
        ))),
    };
    all.iter().map(one).collect()
}

/// Checks a working directory: it must lie in the image itself, so that it can be created there.
pub(crate) fn cwd(text: &str) -> Result<String, Error> {
    let bad = |problem| Error::bad(format!("its working directory {:?} {problem}", shorten(text)));
    let relative = text.trim_start_matches('/');
    let parts = parts(relative.as_bytes()).map_err(|_| bad("leads out of the image"))?;
    if !text.starts_with('/') {
        return Err(bad("does not begin with a slash"));
    }
    if parts.first().is_some_and(|first| [&b"proc"[..], b"sys", b"dev"].contains(first)) {
        return Err(bad("belongs to the kernel, not to the image"));
    }
    let parts: Vec<_> = parts.into_iter().map(String::from_utf8_lossy).collect();
    Ok(format!("/{}", parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(config: &Value, layers: usize) -> Result<ImageConfig, Error> {
        let platform = Platform::parse("linux/amd64").unwrap();
        ImageConfig::read(config.to_string().as_bytes(), layers, &platform)
    }

    fn with_settings(settings: &Value) -> Result<ImageConfig, Error> {
        let rootfs = json!({"type": "layers", "diff_ids": []});
        let config = json!({
            "os": "linux", "architecture": "amd64", "config": settings, "rootfs": rootfs,
        });
        read(&config, 0)
    }

    /// Promises: A6.
    #[test]
    fn unusable_settings_are_refused_with_a_reason() {
        for (settings, word) in [
            (json!({"WorkingDir": "/proc/self/fd/7"}), "kernel"),
            (json!({"WorkingDir": "/a/../../b"}), "leads out"),
            (json!({"WorkingDir": "a"}), "slash"),
            (json!({"Env": ["A"]}), "NAME=VALUE"),
            (json!({"Env": ["=A"]}), "NAME=VALUE"),
            (json!({"Env": [format!("A={}", "x".repeat(200_000))]}), "more than"),
            (json!({"Env": "A=B"}), "cannot be parsed"),
        ] {
            let error = with_settings(&settings).unwrap_err().to_string();
            assert!(error.contains(word), "{word}: {error}");
        }
    }

    /// Promises: A6.
    #[test]
    fn configurations_of_other_images_are_refused_with_a_reason() {
        let rootfs = json!({"type": "layers", "diff_ids": []});
        for (config, layers, word) in [
            (json!({"os": "windows", "architecture": "amd64", "rootfs": rootfs}), 0, "windows"),
            (json!({"os": "linux", "architecture": "arm64", "rootfs": rootfs}), 0, "linux/arm64"),
            (json!({"os": "linux", "architecture": "amd64", "rootfs": rootfs}), 1, "1 layers"),
            (json!({"os": "linux", "architecture": "amd64"}), 0, "rootfs"),
            (json!([]), 0, "cannot be parsed"),
        ] {
            let error = read(&config, layers).unwrap_err().to_string();
            assert!(error.contains(word), "{word}: {error}");
        }
    }

    #[test]
    fn settings_may_be_absent_null_or_unknown() {
        assert_eq!(with_settings(&Value::Null).unwrap(), ImageConfig::default());
        let settings = json!({
            "Env": null, "WorkingDir": "", "User": null, "Cmd": null, "Entrypoint": ["a"],
            "Volumes": {"/data": {}}, "ExposedPorts": null, "Labels": null, "OnBuild": [],
            "Healthcheck": {"Test": ["CMD", "true"]}, "ArgsEscaped": true,
        });
        assert_eq!(with_settings(&settings).unwrap(), ImageConfig::default());
        let settings = json!({"WorkingDir": "//a/./b/", "User": "1:2", "Env": ["A=b=c", "D="]});
        let config = with_settings(&settings).unwrap();
        assert_eq!(config.labels, BTreeMap::new());
        assert_eq!(config.cwd.as_deref(), Some("/a/b"));
        assert_eq!(config.user, "1:2");
        assert_eq!(config.env["A"], "b=c");
        assert_eq!(config.env["D"], "");
    }

    #[test]
    fn labels_are_recorded_unless_they_are_too_large() {
        let config = with_settings(&json!({"Labels": {"a": "1", WORKSPACE_LABEL: "true"}}));
        let config = config.unwrap();
        assert!(config.workspace);
        assert_eq!(config.labels, BTreeMap::from([("a".to_owned(), "1".to_owned())]));
        let large = with_settings(&json!({"Labels": {"a": "x".repeat(LABELS_BYTES_MAX)}}));
        assert_eq!(large.unwrap().labels, BTreeMap::new());
    }
}
