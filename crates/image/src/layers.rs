//! A layer comes to be here: fetched, unpacked, compared with its digests, and only then in its place.

use crate::{
    Error, Inner,
    manifest::Part,
    merged::fold,
    reference::Digest,
    registry::Repository,
    store::{Staged, make_tree},
    stream::Fetched,
    unpack::{self, Budget, Told},
};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
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

/// Keeps a layer from being collected until the image that it is for is recorded, or is not to be.
pub(crate) type Held = Arc<tokio::sync::Mutex<()>>;

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
            floor_bytes: limits.floor_mib << 20,
        }
    }

    /// Nobody else makes this layer meanwhile; it is not collected while either is there.
    async fn alone(&self, name: &str) -> (OwnedMutexGuard<()>, Held) {
        let turn = {
            let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            busy.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(busy.entry(name.to_owned()).or_default())
        };
        (Arc::clone(&turn).lock_owned().await, turn)
    }

    /// Layers of images that are being made.
    pub(crate) fn held(busy: &HashMap<String, Held>) -> HashSet<String> {
        let held = busy.iter().filter(|(_, turn)| Arc::strong_count(turn) > 1);
        held.map(|(name, _)| name.clone()).collect()
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
        let max = self.config.limits.unpacked_mib << 20;
        let mut add = |told: Told| {
            all.bytes = all.bytes.saturating_add(told.bytes);
            all.entries += told.entries;
            all.skipped += told.skipped;
            all.strangers += told.strangers;
            let whole = || Error::large("files of an image", format!("{} MiB", max >> 20));
            if all.bytes > max { Err(whole()) } else { Ok(()) }
        };
        if low > 0 {
            let (name, told, held) = self.one_of_many(tenant, &wanted[..low], tell).await?;
            add(told)?;
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
            add(told)?;
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
        let (_alone, held) = self.alone(&name).await;
        let known = self.store.layer(&name);
        if let Some(told) = &known
            && self.store.has_shown(&name, tenant)
        {
            tell(index, None);
            return Ok((name, told.clone(), held));
        }
        let staged = if known.is_some() { None } else { Some(self.store.stage()?) };
        let (told, staged) = self.unpack(wanted, staged, index, tell).await?;
        if let Some(staged) = staged {
            self.store.place(&staged, &name, &told)?;
        }
        self.store.show(&name, tenant)?;
        tell(index, None);
        Ok((name, told, held))
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
        let (_alone, held) = self.alone(&name).await;
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
            let stage = if known.is_some() { None } else { Some(self.store.stage()?) };
            let (told, staged) = self.unpack(layer, stage, index, tell).await?;
            all.bytes = all.bytes.saturating_add(told.bytes);
            all.entries += told.entries;
            all.skipped += told.skipped;
            all.strangers += told.strangers;
            tell(index, None);
            base = match (base, staged) {
                (Some(base), Some(top)) => Some(blocking(move || folded(base, &top)).await?),
                (None, staged) => staged,
                (base, None) => base,
            };
        }
        if known.is_none() {
            let base = base.ok_or_else(|| Error::bad("it has no layers"))?;
            self.store.place(&base, &name, &all)?;
        }
        self.store.show(&name, tenant)?;
        Ok((name, all, held))
    }

    /// Reads a layer to its end, into a directory where one is given, and compares.
    async fn unpack(
        &self,
        wanted: &Wanted<'_>,
        staged: Option<Staged>,
        index: usize,
        tell: Tell<'_>,
    ) -> Result<(Told, Option<Staged>), Error> {
        let closed = |_| Error::Disk("no more images are unpacked".into());
        let _thread = self.threads.acquire().await.map_err(closed)?;
        let budget = self.budget();
        let work = move |from: Box<dyn std::io::Read + Send>| {
            let tree = staged.as_ref().map(|staged| make_tree(&staged.0)).transpose()?;
            let done = unpack::layer(from, tree.as_ref().map(AsFd::as_fd), budget)?;
            Ok::<_, Error>((done, staged))
        };
        let ((told, found), staged) = match &wanted.source {
            Source::Registry(repository, part) => {
                let (to, from) = mpsc::channel(PIECES_MAX);
                let unpacking = blocking(move || work(Box::new(Fetched::new(from))));
                let fetching = fetch(repository, part, to, |done| tell(index, Some(done)));
                tokio::join!(unpacking, fetching).0?
            }
            Source::File(path, _) => {
                let path = path.clone();
                blocking(move || work(Box::new(std::fs::File::open(path)?))).await?
            }
        };
        let said = match &wanted.source {
            Source::Registry(_, part) => Some(part),
            Source::File(_, part) => part.as_ref(),
        };
        let whole =
            said.is_none_or(|said| said.digest == found.blob && said.bytes == found.blob_bytes);
        if !whole || wanted.diff_id != found.diff_id {
            let (is, said) = match said.filter(|_| !whole) {
                Some(said) => (found.blob, &said.digest),
                None => (found.diff_id, &wanted.diff_id),
            };
            return Err(Error::bad(format!("a layer is not {said} but {is}")));
        }
        Ok((told, staged))
    }
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
