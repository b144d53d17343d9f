//! [`Builder`]: the builds of all tenants.

mod build;

pub use build::BuildWatch;

use crate::archive::ArchiveSummary;
use crate::build_log::{LogEntry, LogLevel};
use crate::error::Error;
use crate::files::{Files, FilesName, PinnedFiles, Reserve, Upload};
use crate::recipe::{Action, Recipe};
use crate::records::{BuildInfo, BuildRecord, BuildState, FailedPart, read_all};
use crate::run::{BuildRun, Failure};
use crate::upload_token::{UploadGrant, UploadKey};
use build::Build;
use isolet_sandbox::{SandboxId, Service, TenantId};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{info, warn};

/// Builds that run at the same time, of all tenants.
const RUNNING_MAX: usize = 8;
/// Builds of one tenant that run at the same time.
const TENANT_RUNNING_MAX: usize = 4;
/// Builds of one tenant that have not ended.
const TENANT_OPEN_MAX: usize = 32;
/// Ended builds of one tenant whose records are kept.
const TENANT_ENDED_MAX: usize = 50;
/// How long a build may run.
const RUN_MAX: Duration = Duration::from_secs(3600);
/// How long after a request its steps may be given.
const REQUEST_MAX_MS: i64 = 3600 * 1000;
/// How much longer than its build a sandbox may live, if nothing deletes it.
const SANDBOX_SPARE: Duration = Duration::from_secs(600);
/// Maximum number of names of one image.
const NAMES_MAX: usize = 32;
/// What ended builds have as their reason whose server stopped.
const STOPPED: &str = "the server stopped while the build ran; start the build again";

/// The builds of all tenants. Clones share them.
#[derive(Clone)]
pub struct Builder {
    inner: Arc<Inner>,
}

struct Inner {
    service: Service,
    root: PathBuf,
    files: Arc<Files>,
    upload_key: UploadKey,
    builds: Mutex<HashMap<TenantId, Vec<Arc<Build>>>>,
    running: Arc<Semaphore>,
    tenant_running: Mutex<HashMap<TenantId, Arc<Semaphore>>>,
}

/// The names of the image that a build makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildNames(Vec<String>);

impl BuildNames {
    /// Checks names: 1 to 32.
    ///
    /// # Errors
    /// [`Error::BadRecipe`].
    pub fn parse(names: Vec<String>) -> Result<Self, Error> {
        if names.is_empty() || names.len() > NAMES_MAX {
            return Err(Error::recipe("name", format!("1 to {NAMES_MAX} names")));
        }
        Ok(Self(names))
    }
}

/// A random UUID (RFC 9562, version 4).
fn uuid() -> String {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).expect("random bytes");
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let text = hex::encode(bytes);
    [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Builder {
    /// Reads the builds of the previous server. Those that did not end have failed, and their sandboxes
    /// are deleted.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub async fn open(service: Service) -> Result<Self, Error> {
        let root = service.data_dir().join("builds");
        let of = root.clone();
        let files = Arc::new(Files::new(root.clone()));
        let own = Arc::clone(&files);
        let read = move || {
            let all = read_all(&of)?;
            own.clear();
            Ok::<_, Error>(all)
        };
        let read = tokio::task::spawn_blocking(read).await;
        let read = read.map_err(|error| Error::Disk(error.to_string()))??;
        let inner = Arc::new(Inner {
            files,
            service,
            root,
            upload_key: UploadKey::random(),
            builds: Mutex::default(),
            running: Arc::new(Semaphore::new(RUNNING_MAX)),
            tenant_running: Mutex::default(),
        });
        for (tenant, record) in read {
            let sandbox = record.sandbox.clone();
            let build = Arc::new(Build::new(tenant.clone(), record.info));
            lock(&inner.builds).entry(tenant.clone()).or_default().push(Arc::clone(&build));
            if build.has_ended() {
                continue;
            }
            if let Some(sandbox) = sandbox {
                let service = inner.service.clone();
                let tenant = tenant.clone();
                tokio::spawn(async move { remove_sandbox(&service, &tenant, &sandbox).await });
            }
            inner.fail(&build, FailedPart::Build, STOPPED).await;
        }
        for builds in lock(&inner.builds).values_mut() {
            builds.sort_by_key(|build| build.created_at_ms);
        }
        Ok(Self { inner })
    }

    /// Reserves a build, whose steps are given later with [`Builder::start`].
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Disk`], and errors of the names.
    pub async fn request(&self, tenant: &TenantId, names: BuildNames) -> Result<BuildInfo, Error> {
        let inner = &self.inner;
        inner.freed(tenant, inner.service.check_upload(tenant)).await?;
        let mut complete = Vec::new();
        for name in &names.0 {
            complete.push(inner.service.complete_name(name)?);
        }
        inner.expire(tenant).await;
        let info = BuildInfo {
            id: uuid(),
            names: complete,
            created_at_ms: isolet_clock::now_ms(),
            ended_at_ms: None,
            state: BuildState::Requested,
        };
        let build = Arc::new(Build::new(tenant.clone(), info.clone()));
        let evicted = {
            let mut all = lock(&inner.builds);
            let own = all.entry(tenant.clone()).or_default();
            if own.iter().filter(|build| !build.has_ended()).count() >= TENANT_OPEN_MAX {
                return Err(Error::Busy(TENANT_OPEN_MAX));
            }
            own.push(Arc::clone(&build));
            let ended = own.iter().filter(|build| build.has_ended()).count();
            let oldest = own.iter().filter(|build| build.has_ended());
            let oldest: Vec<String> =
                oldest.take(ended.saturating_sub(TENANT_ENDED_MAX)).map(|b| b.id.clone()).collect();
            own.retain(|build| !oldest.contains(&build.id));
            oldest
        };
        if let Err(error) = inner.write(&build, evicted).await {
            // It would count as open although nobody has its id.
            if let Some(own) = lock(&inner.builds).get_mut(tenant) {
                own.retain(|other| !Arc::ptr_eq(other, &build));
            }
            return Err(error);
        }
        Ok(info)
    }

    /// Checks a recipe as a start does.
    ///
    /// # Errors
    /// [`Error::BadRecipe`], [`Error::NoFiles`].
    pub async fn check(&self, tenant: &TenantId, recipe: &Recipe) -> Result<(), Error> {
        recipe.check()?;
        self.pin_files(tenant, recipe).await.map(drop)
    }

    /// Starts a requested build. It continues when the caller leaves.
    ///
    /// # Errors
    /// [`Error::NoBuild`], [`Error::Started`], [`Error::BadRecipe`], [`Error::NoFiles`].
    pub async fn start(&self, tenant: &TenantId, id: &str, recipe: Recipe) -> Result<(), Error> {
        recipe.check()?;
        let build = self.inner.find(tenant, id)?;
        let files = self.pin_files(tenant, &recipe).await?;
        if !build.leave_requested(BuildState::Waiting) {
            return Err(Error::Started(id.to_owned()));
        }
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move { inner.run(&build, &recipe, files).await });
        Ok(())
    }

    /// The files that the steps copy, which stay as they are.
    async fn pin_files(&self, tenant: &TenantId, recipe: &Recipe) -> Result<PinnedFiles, Error> {
        let names = recipe.steps.iter().map(|step| match &step.action {
            Action::Copy(copy) => Some(copy.files.clone()),
            _ => None,
        });
        let names: Vec<Option<FilesName>> = names.collect();
        let files = Arc::clone(&self.inner.files);
        let tenant = tenant.clone();
        let pinned = tokio::task::spawn_blocking(move || files.pin(&tenant, &names)).await;
        pinned.map_err(|error| Error::Disk(error.to_string()))?
    }

    /// A build.
    ///
    /// # Errors
    /// [`Error::NoBuild`].
    pub fn get(&self, tenant: &TenantId, id: &str) -> Result<BuildInfo, Error> {
        Ok(self.inner.find(tenant, id)?.info())
    }

    /// The builds of a tenant, the latest first.
    #[must_use]
    pub fn list(&self, tenant: &TenantId) -> Vec<BuildInfo> {
        let all = lock(&self.inner.builds);
        all.get(tenant).into_iter().flatten().rev().map(|build| build.info()).collect()
    }

    /// Entries of the log of a build from `offset` on, at most `limit`.
    ///
    /// # Errors
    /// [`Error::NoBuild`], [`Error::Disk`].
    pub async fn log(
        &self,
        tenant: &TenantId,
        id: &str,
        offset: usize,
        limit: usize,
    ) -> Result<Vec<LogEntry>, Error> {
        self.inner.find(tenant, id)?.entries(&self.inner.root, offset, limit).await
    }

    /// Follows the log of a build from its beginning.
    ///
    /// # Errors
    /// [`Error::NoBuild`].
    pub fn follow(&self, tenant: &TenantId, id: &str) -> Result<BuildWatch, Error> {
        let build = self.inner.find(tenant, id)?;
        Ok(BuildWatch { build, offset: 0, root: self.inner.root.clone() })
    }

    /// Cancels a build. One that has ended, or whose image is being made, stays as it is.
    ///
    /// # Errors
    /// [`Error::NoBuild`].
    pub async fn cancel(&self, tenant: &TenantId, id: &str) -> Result<BuildInfo, Error> {
        let build = self.inner.find(tenant, id)?;
        if build.withdraw(CANCELLED) {
            self.inner.store_end(&build).await;
            return Ok(build.info());
        }
        build.cancel.notify_one();
        let mut state = build.state.subscribe();
        let _ = timeout(SANDBOX_SPARE, state.wait_for(|now| now.state.has_ended())).await;
        Ok(build.info())
    }

    /// What an upload of the tenant contains; `None` if there is none of this name.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub async fn files(
        &self,
        tenant: &TenantId,
        name: &FilesName,
    ) -> Result<Option<ArchiveSummary>, Error> {
        let inner = Arc::clone(&self.inner);
        let tenant = tenant.clone();
        let name = name.clone();
        let find = move || inner.files.find(&tenant, &name);
        let found = tokio::task::spawn_blocking(find).await;
        found.map_err(|error| Error::Disk(error.to_string()))
    }

    /// Begins to receive files.
    ///
    /// # Errors
    /// [`Error::Disk`], and errors of the free space, the quota and the number of uploads.
    pub async fn receive(&self, tenant: &TenantId, name: FilesName) -> Result<Upload, Error> {
        let permit = self.inner.service.begin_upload(tenant);
        let permit = self.inner.freed(tenant, permit).await?;
        let reserve: Reserve = Box::new(move |bytes| Ok(permit.reserve(bytes)?));
        self.inner.files.receive(tenant, name, reserve).await
    }

    /// A token that allows an upload without a key.
    #[must_use]
    pub fn upload_token(&self, grant: &UploadGrant, files: &FilesName) -> String {
        self.inner.upload_key.token(grant, files)
    }

    /// What a token allows; `None` if it is not valid for these files now.
    #[must_use]
    pub fn verify_upload(&self, token: &str, files: &FilesName) -> Option<UploadGrant> {
        self.inner.upload_key.verify(token, files, isolet_clock::now_ms())
    }
}

/// What a build has as its reason that a client cancelled.
const CANCELLED: &str = "the build was cancelled";

impl Inner {
    fn find(&self, tenant: &TenantId, id: &str) -> Result<Arc<Build>, Error> {
        let all = lock(&self.builds);
        let found = all.get(tenant).into_iter().flatten().find(|build| build.id == id);
        found.cloned().ok_or_else(|| Error::NoBuild(id.chars().take(64).collect()))
    }

    /// Writes the record of a build, and removes those of others.
    async fn write(self: &Arc<Self>, build: &Build, removed: Vec<String>) -> Result<(), Error> {
        let inner = Arc::clone(self);
        let tenant = build.tenant.clone();
        let record = build.record();
        let writing = tokio::task::spawn_blocking(move || {
            for id in removed {
                BuildRecord::remove(&inner.root, &tenant, &id);
            }
            record.write(&inner.root, &tenant)
        });
        writing.await.map_err(|error| Error::Disk(error.to_string()))?
    }

    /// Ends requests of a tenant whose steps never came.
    async fn expire(self: &Arc<Self>, tenant: &TenantId) {
        let before_ms = isolet_clock::now_ms() - REQUEST_MAX_MS;
        let late: Vec<Arc<Build>> = {
            let all = lock(&self.builds);
            let own = all.get(tenant).into_iter().flatten();
            let late = own.filter(|build| {
                let is_open = build.state.borrow().state == BuildState::Requested;
                is_open && build.created_at_ms < before_ms
            });
            late.cloned().collect()
        };
        for build in late {
            if build.withdraw("its steps were not sent within an hour") {
                self.store_end(&build).await;
            }
        }
    }

    async fn fail(self: &Arc<Self>, build: &Arc<Build>, part: FailedPart, reason: &str) {
        let step = match part {
            FailedPart::Step(index) => Some(index),
            _ => None,
        };
        build.log.put(LogLevel::Error, step, reason);
        self.end(build, BuildState::Failed { part, reason: reason.to_owned() }).await;
    }

    async fn end(self: &Arc<Self>, build: &Arc<Build>, state: BuildState) {
        build.state.send_modify(|progress| {
            progress.state = state;
            progress.ended_at_ms = Some(isolet_clock::now_ms());
            progress.sandbox = None;
        });
        self.store_end(build).await;
    }

    /// Writes the record of a build that has ended.
    async fn store_end(self: &Arc<Self>, build: &Build) {
        match self.write(build, Vec::new()).await {
            Ok(()) => build.log.forget(),
            Err(error) => warn!(build = build.id, %error, "cannot write the end of a build"),
        }
    }

    /// Removes the uploads of a tenant whose quota is used up. They count towards it, clients cannot
    /// delete them, and send them again when they are needed.
    async fn freed<T>(
        &self,
        tenant: &TenantId,
        checked: Result<T, isolet_sandbox::Error>,
    ) -> Result<T, Error> {
        if matches!(checked, Err(isolet_sandbox::Error::QuotaExceeded { .. })) {
            let files = Arc::clone(&self.files);
            let tenant = tenant.clone();
            // If it fails, the next attempt tries again.
            let _ = tokio::task::spawn_blocking(move || files.remove_all(&tenant)).await;
        }
        Ok(checked?)
    }

    fn tenant_slots(&self, tenant: &TenantId) -> Arc<Semaphore> {
        let mut all = lock(&self.tenant_running);
        // Those that nothing uses are not kept.
        all.retain(|_, slots| Arc::strong_count(slots) > 1);
        let slots = all.entry(tenant.clone());
        Arc::clone(slots.or_insert_with(|| Arc::new(Semaphore::new(TENANT_RUNNING_MAX))))
    }

    /// Runs a build from its start to its end.
    async fn run(self: Arc<Self>, build: &Arc<Build>, recipe: &Recipe, files: PinnedFiles) {
        let sandbox = SandboxId::parse(&format!("build-{}", build.id));
        let sandbox = sandbox.unwrap_or_else(|_| SandboxId::random());
        let slots = self.tenant_slots(&build.tenant);
        let run = BuildRun {
            service: &self.service,
            files: &files,
            tenant: &build.tenant,
            log: &build.log,
            recipe,
            sandbox: &sandbox,
            names: &build.names,
            ttl: RUN_MAX + SANDBOX_SPARE,
            build: &build.id,
        };
        let prepare = async {
            // Semaphores are never closed.
            let own_slot = slots.acquire().await.ok();
            let slot = self.running.acquire().await.ok();
            build.state.send_modify(|progress| {
                progress.state = BuildState::Building;
                progress.sandbox = Some(sandbox.clone());
            });
            // Before the sandbox exists, so that a later server finds it.
            self.write(build, Vec::new())
                .await
                .map_err(|error| Failure::build(error.to_string()))?;
            match timeout(RUN_MAX, run.prepare()).await {
                Ok(done) => Ok((done?, own_slot, slot)),
                Err(_) => {
                    let limit = RUN_MAX.as_secs() / 60;
                    Err(Failure::build(format!("the build took longer than {limit} minutes")))
                }
            }
        };
        let prepared = tokio::select! {
            prepared = prepare => prepared,
            () = build.cancel.notified() => Err(Failure::build(CANCELLED.to_owned())),
        };
        // Nothing ends the making of an image, so that a build which failed has made none.
        let done = match prepared {
            Ok((prepared, _own_slot, _slot)) => run.make_image(prepared).await,
            Err(failure) => Err(failure),
        };
        remove_sandbox(&self.service, &build.tenant, &sandbox).await;
        run.evict().await;
        match done {
            Ok(digest) => {
                info!(build = build.id, tenant = %build.tenant, digest, "image built");
                self.end(build, BuildState::Ready { digest }).await;
            }
            Err(Failure { part, reason }) => {
                info!(build = build.id, tenant = %build.tenant, ?part, "build failed");
                self.fail(build, part, &reason).await;
            }
        }
    }
}

/// Deletes the sandbox of a build, if it exists.
async fn remove_sandbox(service: &Service, tenant: &TenantId, id: &SandboxId) {
    match service.delete_without_snapshot(tenant, id).await {
        Ok(_) | Err(isolet_sandbox::Error::NoSandbox(_)) => {}
        Err(error) => warn!(sandbox = %id, %error, "cannot delete the sandbox of a build yet"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_uuids() {
        let id = uuid();
        let lengths: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(&id[14..15], "4");
        assert!(matches!(&id[19..20], "8" | "9" | "a" | "b"));
        assert_ne!(id, uuid());
    }

    #[test]
    fn an_image_has_names() {
        assert!(BuildNames::parse(Vec::new()).is_err());
        assert!(BuildNames::parse(vec!["a".to_owned(); NAMES_MAX]).is_ok());
        assert!(BuildNames::parse(vec!["a".to_owned(); NAMES_MAX + 1]).is_err());
    }
}
