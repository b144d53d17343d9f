//! A layer comes to be here: fetched, unpacked, compared with its digests, and only then in its place.

use super::images::{Held, Inner};
use crate::disk::staging::Staged;
use crate::error::Error;
use crate::manifest::Part;
use crate::overlay::merge::fold;
use crate::reference::Digest;
use crate::registry::client::Repository;
use crate::store::layer::make_tree;
use crate::unpack::byte_stream::Fetched;
use crate::unpack::{self, Budget, Told};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedMutexGuard, mpsc};

/// Layers above this many are made one of: a name that no layer has is looked for in all of them.
pub(crate) const STACK_MAX: usize = 24;
/// Pieces that wait between the connection and the thread that unpacks.
const PIECES_MAX: usize = 16;

/// Where a layer comes from.
pub(crate) enum Source<'a> {
    Registry(&'a Repository<'a>, Part),
    /// A file, and what it is said to be where that is known.
    File(PathBuf, Option<Part>),
}

/// One layer of an image that is being made ready.
pub(crate) struct Wanted<'a> {
    pub(crate) diff_id: Digest,
    pub(crate) source: Source<'a>,
}

/// Layers that are ready.
pub(crate) struct Ready {
    /// Their names below `layers`, the lowest one first.
    pub(crate) names: Vec<String>,
    pub(crate) told: Told,
    /// Dropped when the image is recorded.
    pub(crate) held: Vec<Held>,
}

/// Told how many bytes of a layer have come; `None`: it is ready.
pub(crate) type Tell<'a> = &'a (dyn Fn(usize, Option<u64>) + Send + Sync);

impl Inner {
    fn budget(&self) -> Budget {
        let limits = self.config.limits;
        Budget {
            compressed_bytes: limits.compressed_mib << 20,
            bytes: limits.unpacked_mib << 20,
            entries: limits.entries,
        }
    }

    /// Keeps a layer from being collected.
    fn hold(&self, name: &str) -> Held {
        turn(&self.busy, name.to_owned())
    }

    /// This tenant does not make the layer twice at once. Others may: what is slow to come to one
    /// need not be slow to come to another.
    async fn alone(&self, tenant: &str, name: &str) -> OwnedMutexGuard<()> {
        turn(&self.making, (tenant.to_owned(), name.to_owned())).lock_owned().await
    }

    /// Adds a layer to what an image came to.
    fn add(&self, all: &mut Told, told: &Told) -> Result<(), Error> {
        all.bytes = all.bytes.saturating_add(told.bytes);
        all.entries += told.entries;
        all.skipped += told.skipped;
        all.strangers += told.strangers;
        let max_mib = self.config.limits.unpacked_mib;
        if all.bytes > max_mib << 20 {
            return Err(Error::large("files of an image", format!("{max_mib} MiB")));
        }
        Ok(())
    }

    /// Makes all layers of an image ready, and holds them.
    pub(crate) async fn layers(
        &self,
        tenant: &str,
        wanted: &[Wanted<'_>],
        tell: Tell<'_>,
    ) -> Result<Ready, Error> {
        let low = if wanted.len() > STACK_MAX { wanted.len() + 1 - STACK_MAX } else { 0 };
        let mut names = Vec::with_capacity(wanted.len());
        let mut all_held = Vec::with_capacity(wanted.len());
        let mut all = Told::default();
        if low > 0 {
            let (name, told, held) = self.one_of_many(tenant, &wanted[..low], tell).await?;
            self.add(&mut all, &told)?;
            names.push(name);
            all_held.push(held);
        }
        // Two at a time: one is fetched while another is unpacked.
        use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
        let mut rest = Vec::with_capacity(wanted.len() - low);
        for (index, layer) in wanted.iter().enumerate().skip(low) {
            rest.push(self.layer(tenant, layer, index, tell).boxed());
        }
        let mut made = stream::iter(rest).buffered(2);
        while let Some((name, told, held)) = made.try_next().await? {
            self.add(&mut all, &told)?;
            names.push(name);
            all_held.push(held);
        }
        drop(made);
        // The same layer twice hides nothing and is mounted once.
        let mut seen = HashSet::new();
        let mut once: Vec<_> =
            names.into_iter().rev().filter(|name| seen.insert(name.clone())).collect();
        once.reverse();
        Ok(Ready { names: once, told: all, held: all_held })
    }

    async fn layer(
        &self,
        tenant: &str,
        wanted: &Wanted<'_>,
        index: usize,
        tell: Tell<'_>,
    ) -> Result<(String, Told, Held), Error> {
        let name = wanted.diff_id.hex().to_owned();
        let held = self.hold(&name);
        let _alone = self.alone(tenant, &name).await;
        let known = self.store.layer(&name);
        if let Some(told) = &known
            && self.store.has_shown(&name, tenant)
        {
            tell(index, None);
            return Ok((name, told.clone(), held));
        }
        let staged = if known.is_some() { None } else { Some(self.store.staging.stage()?) };
        let (told, staged) = self.unpack(tenant, wanted, staged, index, tell).await?;
        if let Some(staged) = staged {
            self.place(staged, &name, &told, &held).await?;
        }
        self.store.show(&name, tenant)?;
        tell(index, None);
        Ok((name, told, held))
    }

    /// Gives a layer its place, and waits until it is on the disk. Where another tenant was first,
    /// that one stays: sandboxes may stand on it.
    async fn place(
        &self,
        staged: Staged,
        name: &str,
        told: &Told,
        held: &Held,
    ) -> Result<(), Error> {
        let placing = Arc::clone(held).lock_owned().await;
        let store = Arc::clone(&self.store);
        let name = name.to_owned();
        let told = told.clone();
        let place = move || {
            let _placing = placing;
            if store.layer(&name).is_some() {
                return Ok(());
            }
            store.place(&staged, &name, &told)
        };
        blocking(place).await
    }

    /// The lower layers of an image of many, made one.
    async fn one_of_many(
        &self,
        tenant: &str,
        wanted: &[Wanted<'_>],
        tell: Tell<'_>,
    ) -> Result<(String, Told, Held), Error> {
        let ids: Vec<&str> = wanted.iter().map(|layer| layer.diff_id.hex()).collect();
        let name = Digest::of(ids.join("\n").as_bytes()).hex().to_owned();
        let held = self.hold(&name);
        let _alone = self.alone(tenant, &name).await;
        let known = self.store.layer(&name);
        if let Some(told) = &known
            && self.store.has_shown(&name, tenant)
        {
            (0..wanted.len()).for_each(|index| tell(index, None));
            return Ok((name, told.clone(), held));
        }
        let (mut base, mut all) = (None, Told::default());
        for (index, layer) in wanted.iter().enumerate() {
            // One that is there is only shown again: sandboxes may stand on it.
            let stage = if known.is_some() { None } else { Some(self.store.staging.stage()?) };
            let (told, staged) = match self.unpack(tenant, layer, stage, index, tell).await {
                Ok(done) => done,
                Err(error) => {
                    discard(base).await;
                    return Err(error);
                }
            };
            if let Err(error) = self.add(&mut all, &told) {
                discard(base).await;
                discard(staged).await;
                return Err(error);
            }
            tell(index, None);
            base = match (base, staged) {
                (Some(base), Some(top)) => {
                    let working = self.turns.work().await?;
                    let fold = move || {
                        let _working = working;
                        folded(base, &top)
                    };
                    Some(blocking(fold).await?)
                }
                (None, staged) => staged,
                (base, None) => base,
            };
        }
        if known.is_none() {
            let base = base.ok_or_else(|| Error::bad("it has no layers"))?;
            self.place(base, &name, &all, &held).await?;
        }
        self.store.show(&name, tenant)?;
        Ok((name, all, held))
    }

    /// Reads a layer to its end, into a directory where one is given, and compares.
    async fn unpack(
        &self,
        tenant: &str,
        wanted: &Wanted<'_>,
        staged: Option<Staged>,
        index: usize,
        tell: Tell<'_>,
    ) -> Result<(Told, Option<Staged>), Error> {
        // A file waits for nobody, so it need not wait for those that do.
        let coming = match &wanted.source {
            Source::Registry(..) => Some(self.turns.layer(tenant).await?),
            Source::File(..) => None,
        };
        let working = self.turns.work().await?;
        let budget = self.budget();
        let room = Arc::clone(&self.room);
        let diff_id = wanted.diff_id.clone();
        let said = match &wanted.source {
            Source::Registry(_, part) => Some(part.clone()),
            Source::File(_, part) => part.clone(),
        };
        // What fails is removed on the thread that made it.
        let work = move |from: Box<dyn std::io::Read + Send>| {
            let _coming = coming;
            let tree = staged.as_ref().map(|staged| make_tree(&staged.0)).transpose()?;
            let to = tree.as_ref().map(AsFd::as_fd);
            let (told, digests) = unpack::layer(from, to, budget, &room)?;
            digests.check(said.as_ref(), &diff_id)?;
            Ok::<_, Error>((told, staged))
        };
        match &wanted.source {
            Source::Registry(repository, part) => {
                let (to, from) = mpsc::channel(PIECES_MAX);
                let unpacking = blocking(move || work(Box::new(Fetched::new(from, working))));
                let fetching = fetch(repository, part, to, |done| tell(index, Some(done)));
                tokio::join!(unpacking, fetching).0
            }
            Source::File(path, _) => {
                let path = path.clone();
                let unpacking = move || {
                    let _working = working;
                    work(Box::new(std::fs::File::open(path)?))
                };
                blocking(unpacking).await
            }
        }
    }
}

/// Removes what was staged: it may be large, and takes a thread that may block.
pub(crate) async fn discard(staged: Option<Staged>) {
    let _ = tokio::task::spawn_blocking(move || drop(staged)).await;
}

/// The turn of this name; names that nobody has any more are forgotten.
fn turn<K: Eq + Hash>(turns: &Mutex<HashMap<K, Held>>, name: K) -> Held {
    let mut turns = turns.lock().unwrap_or_else(PoisonError::into_inner);
    turns.retain(|_, turn| Arc::strong_count(turn) > 1);
    Arc::clone(turns.entry(name).or_default())
}

fn folded(base: Staged, top: &Staged) -> Result<Staged, Error> {
    let open = |staged: &Staged| {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
        rustix::fs::open(staged.0.join("tree"), flags, rustix::fs::Mode::empty())
    };
    fold(open(&base)?.as_fd(), open(top)?.as_fd())?;
    Ok(base)
}

/// Sends what comes to the thread that unpacks it; its end too, which is said and not inferred.
async fn fetch(
    repository: &Repository<'_>,
    part: &Part,
    to: mpsc::Sender<Result<Option<Bytes>, Error>>,
    tell: impl Fn(u64),
) {
    let come = async {
        let mut body = repository.blob(&part.digest.to_string()).await?;
        let mut done = 0;
        while let Some(piece) = repository.chunk(&mut body).await? {
            done += piece.len() as u64;
            if done > part.bytes {
                return Err(Error::large(
                    "a layer",
                    format!("the {} bytes it is said to be", part.bytes),
                ));
            }
            tell(done);
            // Whoever unpacks has stopped, and says why.
            if to.send(Ok(Some(piece))).await.is_err() {
                return Ok(());
            }
        }
        let cut = || Error::bad(format!("a layer of {} bytes ends after {done}", part.bytes));
        if done < part.bytes { Err(cut()) } else { Ok(()) }
    };
    let end = come.await.map(|()| None);
    let _ = to.send(end).await;
}

/// On a thread that may block.
pub(crate) async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> Result<R, Error> + Send + 'static,
) -> Result<R, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::Disk(format!("a fault while unpacking: {error}")))?
}
