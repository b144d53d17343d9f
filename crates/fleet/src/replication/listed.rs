//! Reads all keys below a prefix, page by page.

use crate::replication::error::ReplicationError;
use isolet_cluster::etcd::Etcd;
use isolet_cluster::etcd::KeyValue;

/// A list that is read page by page, all at one revision.
pub(super) struct Pages<'a> {
    etcd: &'a Etcd,
    prefix: Vec<u8>,
    page_keys: u16,
    after: Option<Vec<u8>>,
    /// The revision of the list, once the first page is here.
    revision: Option<i64>,
    has_more: bool,
}

impl<'a> Pages<'a> {
    /// A list of all keys below a prefix. A page must fit into one answer of etcd.
    pub(super) fn new(etcd: &'a Etcd, prefix: Vec<u8>, page_keys: u16) -> Self {
        Self { etcd, prefix, page_keys, after: None, revision: None, has_more: true }
    }

    /// The next page; `None` after the last one.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<KeyValue>>, ReplicationError> {
        if !self.has_more {
            return Ok(None);
        }
        let after = self.after.as_deref();
        let page = self.etcd.list(&self.prefix, after, self.page_keys, self.revision).await?;
        self.revision = Some(page.revision);
        self.after = page.pairs.last().map(|pair| pair.key.clone());
        self.has_more = page.has_more && self.after.is_some();
        Ok(Some(page.pairs))
    }

    /// The revision of the list; 0 before the first page.
    pub(super) fn revision(&self) -> i64 {
        self.revision.unwrap_or_default()
    }
}
