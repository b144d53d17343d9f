//! The base of a build: found on this server, or pulled.

use super::BuildRun;
use crate::build_log::LogLevel;
use crate::recipe::Base;
use isolet_sandbox::image::{Image, Phase, Platform, Root};
use isolet_sandbox::{Error, SnapshotId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the first step finds.
#[derive(Debug, Default)]
pub(super) struct FoundBase {
    /// The image, exactly.
    pub(super) image: Option<String>,
    pub(super) snapshot: Option<SnapshotId>,
    /// What identifies it.
    pub(super) digest: String,
    pub(super) env: BTreeMap<String, String>,
    pub(super) cwd: Option<String>,
    /// `None`: root.
    pub(super) user: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
}

impl FoundBase {
    /// What the root of an image sets.
    fn of(root: &Root) -> Self {
        let is_root = root.user.uid == 0;
        Self {
            env: root.env.clone(),
            cwd: root.cwd.clone(),
            user: (!is_root).then(|| format!("{}:{}", root.user.uid, root.user.gid)),
            ..Self::default()
        }
    }
}

impl BuildRun<'_> {
    pub(super) async fn find_base(&self) -> Result<FoundBase, Error> {
        match &self.recipe.base {
            Base::Snapshot(id) => {
                let info = self.service.snapshot(self.tenant, id)?;
                self.log.put(LogLevel::Info, None, format!("from the snapshot {id}"));
                let image = self.service.find_image(self.tenant, &info.image_resolved).ok();
                let labels = image.map(|image| image.labels.clone()).unwrap_or_default();
                let root = self.service.snapshot_root(self.tenant, id)?;
                Ok(FoundBase {
                    digest: format!("snapshot {}", info.id),
                    snapshot: Some(info.id),
                    labels,
                    ..root.as_ref().map(FoundBase::of).unwrap_or_default()
                })
            }
            Base::Image(name) if self.service.names_host(name)? => {
                self.log.put(LogLevel::Info, None, "from the programs of the server's machine");
                let image = Some(name.clone());
                Ok(FoundBase { image, digest: "host".to_owned(), ..FoundBase::default() })
            }
            Base::Image(name) => {
                let image = match self.service.find_image(self.tenant, name) {
                    Ok(image) => image,
                    Err(_) => self.pull(name).await?,
                };
                self.log.put(LogLevel::Info, None, format!("from {name} ({})", image.digest));
                Ok(FoundBase {
                    image: Some(self.service.exact_name(name, &image)?),
                    digest: image.digest.clone(),
                    labels: image.labels.clone(),
                    ..FoundBase::of(&image.root)
                })
            }
        }
    }

    async fn pull(&self, name: &str) -> Result<Arc<Image>, Error> {
        self.log.put(LogLevel::Info, None, format!("pulling {name}"));
        let mut progress = self.service.pull(self.tenant, name, Platform::own())?;
        let mut seen = None;
        loop {
            let (phase, end) = {
                let now = progress.borrow_and_update();
                (now.phase, now.end.clone())
            };
            if let Some(end) = end {
                return Ok(end?.0);
            }
            if seen.replace(phase) != Some(phase) && phase == Phase::Layers {
                self.log.put(LogLevel::Info, None, "receiving its layers");
            }
            let lost = |_| Error::Fault("the task of the pull failed".to_owned());
            progress.changed().await.map_err(lost)?;
        }
    }
}
