//! Calls to the store: objects with a maximum length, and lists with a maximum number of names.

use super::failure::failed;
use super::store_clock::StoreClock;
use crate::crypto::keys::Tag;
use crate::error::Error;
use crate::format::names::HEADER;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of names in one list, so that the store cannot fill the memory. 300,000 packs hold
/// more than 4 TiB.
const NAMES_MAX: usize = 300_000;
/// The object that is written to a directory to read its clock.
const CLOCK: &str = "clock";

/// The objects of a repository.
#[derive(Clone)]
pub(crate) struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// The URL, for messages.
    shown: Arc<str>,
    clock: StoreClock,
}

/// An object in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) tag: Tag,
    pub(crate) bytes: u64,
    /// When it was written, by the clock of the store, in milliseconds since 1970.
    pub(crate) written_ms: i64,
}

impl Objects {
    pub(crate) fn new(
        store: Arc<dyn ObjectStore>,
        prefix: Path,
        shown: String,
        clock: StoreClock,
    ) -> Self {
        Self { store, prefix, shown: shown.into(), clock }
    }

    /// The time by the clock of the store, in milliseconds since 1970, without parts of a second if an
    /// answer has it.
    ///
    /// # Errors
    /// Errors of the store, also if its answers have no date.
    pub(crate) async fn now_ms(&self) -> Result<i64, Error> {
        match &self.clock {
            StoreClock::Answers(date) => {
                self.store.head(&self.at(HEADER)).await.map_err(failed)?;
                date.get().ok_or_else(|| Error::Store("its answers have no date".to_owned()))
            }
            StoreClock::Files => {
                self.put(CLOCK, Vec::new()).await?;
                let written = self.store.head(&self.at(CLOCK)).await.map_err(failed)?;
                Ok(written.last_modified.timestamp_millis())
            }
        }
    }

    /// The URL, for messages.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    fn at(&self, name: &str) -> Path {
        self.prefix.parts().chain(Path::from(name).parts()).collect()
    }

    /// Reads an object. `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is longer than `max` bytes; errors of the store.
    pub(crate) async fn get(&self, name: &str, max: usize) -> Result<Option<Bytes>, Error> {
        self.read(name, GetOptions::default(), max).await
    }

    /// Reads a part of an object.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is missing or shorter; errors of the store.
    pub(crate) async fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes, Error> {
        let length = usize::try_from(range.end - range.start).map_err(Error::fault)?;
        let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
        match self.read(name, options, length).await? {
            Some(bytes) if bytes.len() == length => Ok(bytes),
            Some(_) => Err(Error::damaged(name, "it is too short")),
            None => Err(Error::damaged(name, "it does not exist")),
        }
    }

    async fn read(
        &self,
        name: &str,
        options: GetOptions,
        max: usize,
    ) -> Result<Option<Bytes>, Error> {
        let mut body = match self.store.get_opts(&self.at(name), options).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            got => got.map_err(failed)?.into_stream(),
        };
        let mut all = Vec::new();
        while let Some(part) = body.try_next().await.map_err(failed)? {
            if all.len() + part.len() > max {
                return Err(Error::damaged(name, format!("it is longer than {max} bytes")));
            }
            all.extend_from_slice(&part);
        }
        Ok(Some(all.into()))
    }

    /// The length of an object, in bytes. `None` if there is none.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) async fn length(&self, name: &str) -> Result<Option<u64>, Error> {
        match self.store.head(&self.at(name)).await {
            Ok(about) => Ok(Some(about.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Writes an object, or replaces it.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) async fn put(&self, name: &str, content: impl Into<Bytes>) -> Result<(), Error> {
        let path = self.at(name);
        let content: Bytes = content.into();
        let put = self.store.put(&path, content.into());
        put.await.map(drop).map_err(failed)
    }

    /// Writes an object that does not exist yet. Returns `false` if it exists.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) async fn create(&self, name: &str, content: Vec<u8>) -> Result<bool, Error> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let payload = Bytes::from(content).into();
        match self.store.put_opts(&self.at(name), payload, options).await {
            Ok(_) => Ok(true),
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. },
            ) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// Deletes an object. No error if there is none.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), Error> {
        match self.store.delete(&self.at(name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    /// The objects in a directory whose names are tags. Other names are left out.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; errors of the store.
    pub(crate) async fn list(&self, directory: &str) -> Result<Vec<Listed>, Error> {
        let directory = self.at(directory);
        let mut listed = Vec::new();
        let mut names = self.store.list(Some(&directory));
        let mut count = 0;
        while let Some(object) = names.next().await {
            let object = object.map_err(failed)?;
            count += 1;
            check_count(count)?;
            let Some(mut parts) = object.location.prefix_match(&directory) else { continue };
            let (Some(name), None) = (parts.next(), parts.next()) else { continue };
            if let Some(tag) = parse_tag(name.as_ref()) {
                let written_ms = object.last_modified.timestamp_millis();
                listed.push(Listed { tag, bytes: object.size, written_ms });
            }
        }
        Ok(listed)
    }

    /// The directories below a directory whose names are tags.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; errors of the store.
    pub(crate) async fn list_directories(&self, directory: &str) -> Result<Vec<Tag>, Error> {
        let directory = self.at(directory);
        let mut listed = Vec::new();
        let mut names = self.store.list(Some(&directory));
        let mut count = 0;
        while let Some(object) = names.next().await {
            let object = object.map_err(failed)?;
            count += 1;
            check_count(count)?;
            let Some(mut parts) = object.location.prefix_match(&directory) else { continue };
            let tag = parts.next().and_then(|name| parse_tag(name.as_ref()));
            if let Some(tag) = tag.filter(|tag| listed.last() != Some(tag)) {
                listed.push(tag);
            }
        }
        listed.sort_unstable();
        listed.dedup();
        Ok(listed)
    }
}

fn check_count(count: usize) -> Result<(), Error> {
    match count > NAMES_MAX {
        true => {
            let limit = format!("{NAMES_MAX} names");
            Err(Error::TooLarge { what: "the objects of the store", limit })
        }
        false => Ok(()),
    }
}

fn parse_tag(text: &str) -> Option<Tag> {
    let mut tag = Tag::default();
    hex::decode_to_slice(text, &mut tag).ok()?;
    Some(tag)
}
