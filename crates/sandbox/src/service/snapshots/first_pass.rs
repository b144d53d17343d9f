//! The copy of a sandbox's files while it runs, so that it need not stand still for long afterwards.

use crate::live::entry::SandboxEntry;
use crate::live::failpoint::pass;
use crate::live::inner::Inner;
use crate::live::snapshots::{LiveStage, SpaceFloor};
use crate::model::blocking::blocking;
use crate::model::command::DriverCommand;
use crate::model::error::Error;
use crate::model::held::cancel::CancelToken;
use crate::model::record::RecordBody;
use crate::model::record::snapshot_layers::LayerStack;
use crate::model::state::State;
use crate::service::request;
use isolet_jail::SandboxHandle;
use isolet_storage::CopyError;
use std::future::Future;
use std::time::Duration;

/// The longest time that a first pass may take, as that of a sandbox that is held.
const PASS_MAX: Duration = Duration::from_secs(15 * 60);

/// What the first pass copied.
pub(super) struct FirstPass {
    pub(super) stage: LiveStage,
    /// How long the sandbox stood still for it.
    pub(super) stood: Duration,
    /// The layers of the sandbox below the copy, and the first id of its files.
    layers: LayerStack,
    id_base: Option<u32>,
}

impl FirstPass {
    /// Whether the sandbox still has the files of the first pass: a restore in place gives it others.
    pub(super) fn fits(&self, body: &RecordBody) -> bool {
        self.layers == body.layers && self.id_base == body.id_base
    }
}

impl Inner {
    /// Copies the files of a sandbox that runs, where copies take long; `None` elsewhere and if it
    /// does not run.
    pub(super) async fn first_pass(
        &self,
        entry: &SandboxEntry,
        name: &str,
        running: &CancelToken,
    ) -> Result<Option<FirstPass>, Error> {
        let view = entry.view();
        let body = &view.record.body;
        let files = &self.snapshots.files;
        let runs = matches!(view.record.state, State::Running | State::Paused);
        if !files.copies_in_two_passes(body) || !runs {
            return Ok(None);
        }
        let first = match body.limits.disk_mib {
            0 => self.trees(entry, body, name, running).await?,
            _ => Some(self.disk(entry, body, name, running).await?),
        };
        pass("snapshot.live").await?;
        Ok(first)
    }

    /// Copies the image of its disk.
    async fn disk(
        &self,
        entry: &SandboxEntry,
        body: &RecordBody,
        name: &str,
        running: &CancelToken,
    ) -> Result<FirstPass, Error> {
        let files = self.snapshots.files.clone();
        let disk_mib = body.limits.disk_mib;
        let jail = self.jail.clone();
        let sandbox = entry.name.clone();
        let directory = entry.directory.clone();
        let late = CancelToken::default();
        let guard = files.guard_with(self.floor(), vec![running.clone(), late.clone()]);
        let staged = name.to_owned();
        let copied = blocking(move || {
            files.check_disk(&directory, disk_mib)?;
            // So that less is left to write while it stands still. That tells about errors.
            let _ = isolet_jail::write_disk(&SandboxHandle::open(&jail, &sandbox));
            files.stage_live_disk(&staged, &directory, guard)
        });
        let stage = in_time(copied, &late).await?;
        let stage = stage.map_err(|error| self.not_copied(entry, running, error))?;
        Ok(FirstPass {
            stage,
            stood: Duration::ZERO,
            layers: body.layers.clone(),
            id_base: body.id_base,
        })
    }

    /// Copies its directories. `None` if it fell asleep.
    async fn trees(
        &self,
        entry: &SandboxEntry,
        body: &RecordBody,
        name: &str,
        running: &CancelToken,
    ) -> Result<Option<FirstPass>, Error> {
        let files = self.snapshots.files.clone();
        let layer = match files.uses_layers(body) {
            true => Some(self.new_layer(entry, body).await?),
            false => None,
        };
        let brief = request(entry, |answer| DriverCommand::StopBriefly(files.staging(), answer));
        let Some(stop) = brief.await? else { return Ok(None) };
        let directory = entry.directory.clone();
        let late = CancelToken::default();
        let guard = files.guard_with(self.floor(), vec![running.clone(), late.clone()]);
        let staged = name.to_owned();
        let since = stop.moment;
        let copied =
            blocking(move || files.stage_live_trees(&staged, &directory, since, layer, guard));
        let stage = in_time(copied, &late).await?;
        let stage = stage.map_err(|error| self.not_copied(entry, running, error))?;
        let layers = body.layers.clone();
        Ok(Some(FirstPass { stage, stood: stop.stood, layers, id_base: body.id_base }))
    }

    fn floor(&self) -> SpaceFloor {
        SpaceFloor { floor_mib: self.config.free_space_floor_mib }
    }
}

/// Cancels a copy that takes too long.
async fn in_time<R>(
    copied: impl Future<Output = Result<Result<R, CopyError>, Error>>,
    late: &CancelToken,
) -> Result<Result<R, CopyError>, Error> {
    let mut copied = std::pin::pin!(copied);
    match tokio::time::timeout(PASS_MAX, &mut copied).await {
        Ok(copied) => copied,
        Err(_) => {
            late.cancel();
            copied.await
        }
    }
}
