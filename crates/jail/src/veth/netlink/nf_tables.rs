//! Elements of the packet filter's sets, put in and taken out by netlink: one transaction, in a
//! fraction of the time that `nft` takes to start. Where a create or a change of rules waits.

use super::{CREATE, Netlink, Request};
use crate::veth::set_element::{Element, Part};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// Elements of a change that is made here; `nft` does what is more.
pub(crate) const CHANGED_MAX: usize = 512;
/// Elements of one message: the length of a list is told in 16 bits.
const LISTED_MAX: usize = 128;

/// Messages of this subsystem, and what they ask.
const TABLES: u16 = 10;
const NEW_ELEMENT: u16 = TABLES << 8 | 12;
const DELETE_ELEMENT: u16 = TABLES << 8 | 14;
/// What lies between these two is done whole or not at all.
const BEGIN: u16 = 16;
const END: u16 = 17;
const INET: u8 = 1;
const NESTED: u16 = 0x8000;
/// Of a list of elements: its table, its set, its elements.
const TABLE: u16 = 1;
const SET: u16 = 2;
const ELEMENTS: u16 = 3;
/// Of one: where it begins, and where it ends.
const KEY: u16 = 1;
const KEY_END: u16 = 10;

/// Longest name of a link, with its NUL.
const NAME_BYTES: usize = 16;

/// From some elements to others in the table `inet isolet`; `None`: more than is done here.
///
/// # Errors
/// As the kernel says; nothing has changed then.
pub(crate) fn change_elements(
    socket: &mut Netlink,
    was: &BTreeSet<Element>,
    is: &BTreeSet<Element>,
) -> Option<Result<(), Errno>> {
    let (gone, come) = (was.difference(is).count(), is.difference(was).count());
    if gone + come > CHANGED_MAX {
        return None;
    }
    if gone + come == 0 {
        return Some(Ok(()));
    }
    let [high, low] = TABLES.to_be_bytes();
    let edge = |kind| Request::new(kind, 0, &[0, 0, high, low]);
    let mut batch = vec![edge(BEGIN)];
    batch.extend(lists(DELETE_ELEMENT, 0, was.difference(is)));
    batch.extend(lists(NEW_ELEMENT, CREATE, is.difference(was)));
    batch.push(edge(END));
    Some(socket.batch(batch))
}

/// What is to be done with these, a message for each set and so many of it.
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
            let request = Request::new(kind, flags, &[INET, 0, 0, 0]);
            let request = request.text(TABLE, "isolet").text(SET, set);
            requests.push(request.nest(ELEMENTS | NESTED, &[], |list| {
                some.iter()
                    .fold(list, |list, element| list.nest(1 | NESTED, &[], |it| put(it, element)))
            }));
        }
    }
    requests.into_iter()
}

fn put(request: Request, element: &Element) -> Request {
    let value = |request: Request, kind: u16, bytes: &[u8]| {
        request.nest(kind | NESTED, &[], |data| data.put(1, bytes))
    };
    let request = value(request, KEY, &key(&element.parts, false));
    if !element.ranges() {
        return request;
    }
    value(request, KEY_END, &key(&element.parts, true))
}

/// The parts behind each other, each as the kernel has it, up to a multiple of four bytes.
fn key(parts: &[Part], last: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        match part {
            Part::Link(name) => {
                let mut space = [0; NAME_BYTES];
                let length = name.len().min(NAME_BYTES - 1);
                space[..length].copy_from_slice(&name.as_bytes()[..length]);
                bytes.extend(space);
            }
            Part::Addresses(first, end) => {
                bytes.extend(if last { end.octets() } else { first.octets() });
            }
            Part::Protocol(_, number) => bytes.extend([*number, 0, 0, 0]),
            Part::Ports(first, end) => {
                bytes.extend((if last { end } else { first }).to_be_bytes());
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
            Part::Link("l300".into()),
            Part::Addresses([1, 2, 3, 0].into(), [1, 2, 3, 255].into()),
            Part::Protocol("tcp", 6),
            Part::Ports(80, 443),
        ];
        let mut first = b"l300\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
        let mut last = first.clone();
        first.extend([1, 2, 3, 0, 6, 0, 0, 0, 0, 80, 0, 0]);
        last.extend([1, 2, 3, 255, 6, 0, 0, 0, 1, 187, 0, 0]);
        assert_eq!((key(&parts, false), key(&parts, true)), (first, last));
    }
}
