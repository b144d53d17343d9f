//! Adds and removes elements of the packet filter's sets by netlink, in one transaction. This takes
//! a fraction of the time that `nft` takes to start, and the creation of a sandbox waits for it.

use super::{CREATE, NetlinkSocket, Request};
use crate::veth::set_element::{Element, Part};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// The most elements of one change; larger changes are made by `nft`.
pub(crate) const CHANGED_MAX: usize = 512;
/// The most elements of one message: the length of a list has 16 bits.
const LISTED_MAX: usize = 128;

/// Types of messages, and those that delimit a transaction.
const NEW_ELEMENTS: u16 = message_type(libc::NFT_MSG_NEWSETELEM);
const DELETE_ELEMENTS: u16 = message_type(libc::NFT_MSG_DELSETELEM);
const BATCH_BEGIN: u16 = libc::NFNL_MSG_BATCH_BEGIN as u16;
const BATCH_END: u16 = libc::NFNL_MSG_BATCH_END as u16;
const NESTED: u16 = libc::NLA_F_NESTED as u16;
/// Attributes of a list of elements, of one element, and of its key
/// (`linux/netfilter/nf_tables.h`). libc does not define them.
const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
const NFTA_SET_ELEM_LIST_SET: u16 = 2;
const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
const NFTA_LIST_ELEM: u16 = 1;
const NFTA_SET_ELEM_KEY: u16 = 1;
const NFTA_SET_ELEM_KEY_END: u16 = 10;
const NFTA_DATA_VALUE: u16 = 1;

/// The size of an interface's name with its NUL.
const NAME_BYTES: usize = libc::IFNAMSIZ;

/// Changes the elements of the table `inet isolet` from `before` to `after`; `None` when there are
/// more than [`CHANGED_MAX`] changes.
///
/// # Errors
/// The kernel's; nothing has changed then.
pub(crate) fn change_elements(
    socket: &mut NetlinkSocket,
    before: &BTreeSet<Element>,
    after: &BTreeSet<Element>,
) -> Option<Result<(), Errno>> {
    let changed = before.symmetric_difference(after).count();
    if changed > CHANGED_MAX {
        return None;
    }
    if changed == 0 {
        return Some(Ok(()));
    }
    let [high, low] = (libc::NFNL_SUBSYS_NFTABLES as u16).to_be_bytes();
    let delimiter = |kind| Request::new(kind, 0, &[0, 0, high, low]);
    let mut batch = vec![delimiter(BATCH_BEGIN)];
    batch.extend(lists(DELETE_ELEMENTS, 0, before.difference(after)));
    batch.extend(lists(NEW_ELEMENTS, CREATE, after.difference(before)));
    batch.push(delimiter(BATCH_END));
    Some(socket.transaction(batch))
}

const fn message_type(message: libc::c_int) -> u16 {
    (libc::NFNL_SUBSYS_NFTABLES << 8 | message) as u16
}

/// Messages for these elements: at least one for each set.
fn lists<'a>(
    kind: u16,
    flags: u16,
    elements: impl Iterator<Item = &'a Element>,
) -> impl Iterator<Item = Request> {
    let mut sets: BTreeMap<&str, Vec<&Element>> = BTreeMap::new();
    for element in elements {
        sets.entry(element.set).or_default().push(element);
    }
    let mut requests = Vec::new();
    for (set, elements) in sets {
        for some in elements.chunks(LISTED_MAX) {
            let request = Request::new(kind, flags, &[libc::NFPROTO_INET as u8, 0, 0, 0]);
            let request =
                request.text(NFTA_SET_ELEM_LIST_TABLE, "isolet").text(NFTA_SET_ELEM_LIST_SET, set);
            requests.push(request.nest(NFTA_SET_ELEM_LIST_ELEMENTS | NESTED, &[], |list| {
                some.iter().fold(list, |list, element| {
                    list.nest(NFTA_LIST_ELEM | NESTED, &[], |request| put_element(request, element))
                })
            }));
        }
    }
    requests.into_iter()
}

fn put_element(request: Request, element: &Element) -> Request {
    let value = |request: Request, kind: u16, bytes: &[u8]| {
        request.nest(kind | NESTED, &[], |data| data.put(NFTA_DATA_VALUE, bytes))
    };
    let request = value(request, NFTA_SET_ELEM_KEY, &key(&element.parts, KeyEnd::First));
    if !element.is_range() {
        return request;
    }
    value(request, NFTA_SET_ELEM_KEY_END, &key(&element.parts, KeyEnd::Last))
}

/// One end of the range that a key holds.
#[derive(Clone, Copy)]
enum KeyEnd {
    First,
    Last,
}

impl KeyEnd {
    fn of<T>(self, first: T, last: T) -> T {
        match self {
            Self::First => first,
            Self::Last => last,
        }
    }
}

/// The parts in the kernel's layout, each padded to a multiple of four bytes.
fn key(parts: &[Part], end: KeyEnd) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        match part {
            Part::Interface(name) => {
                let mut padded = [0; NAME_BYTES];
                let length = name.len().min(NAME_BYTES - 1);
                padded[..length].copy_from_slice(&name.as_bytes()[..length]);
                bytes.extend(padded);
            }
            Part::Addresses(first, last) => {
                bytes.extend(end.of(first, last).octets());
            }
            Part::Protocol(_, number) => bytes.extend([*number, 0, 0, 0]),
            Part::Ports(first, last) => {
                bytes.extend(end.of(first, last).to_be_bytes());
                bytes.extend([0, 0]);
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_laid_out_as_the_kernel_has_it() {
        let parts = [
            Part::Interface("l300".into()),
            Part::Addresses([1, 2, 3, 0].into(), [1, 2, 3, 255].into()),
            Part::Protocol("tcp", 6),
            Part::Ports(80, 443),
        ];
        let mut first = b"l300\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
        let mut last = first.clone();
        first.extend([1, 2, 3, 0, 6, 0, 0, 0, 0, 80, 0, 0]);
        last.extend([1, 2, 3, 255, 6, 0, 0, 0, 1, 187, 0, 0]);
        assert_eq!((key(&parts, KeyEnd::First), key(&parts, KeyEnd::Last)), (first, last));
    }
}
