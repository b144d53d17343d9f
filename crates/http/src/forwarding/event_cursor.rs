//! The position in the merged events of all nodes: the position in those of each node.

use crate::foundation::error::ApiError;
use axum::http::HeaderMap;
use isolet_wire::node::NodeName;
use std::collections::BTreeMap;

/// The longest `Last-Event-ID`: what fits beside other headers into the head of a request.
const CURSOR_BYTES_MAX: usize = 24 * 1024;

/// The id of the last event of each node, as `NODE:ID,NODE:ID`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct EventCursor {
    nodes: BTreeMap<NodeName, u64>,
    /// The position in the events of nodes that are not named. 0: from the oldest event on.
    others: u64,
}

impl EventCursor {
    /// The cursor of a client that reconnects; `None` without one.
    ///
    /// # Errors
    /// 400 when it is malformed.
    pub(super) fn of(headers: &HeaderMap) -> Result<Option<Self>, ApiError> {
        let Some(value) = headers.get("last-event-id") else { return Ok(None) };
        let text = value.to_str().ok().filter(|text| text.len() <= CURSOR_BYTES_MAX);
        let parsed = text.and_then(Self::parse).map(Some);
        parsed.ok_or_else(|| {
            ApiError::bad_field("Last-Event-ID", "must be the id of an event of this fleet")
        })
    }

    fn parse(text: &str) -> Option<Self> {
        // A client that knows only the ids of single events sends the last one. Nodes that did not
        // send that event report a gap, and send what they hold.
        if let Ok(others) = text.parse() {
            return (others < u64::MAX).then(|| Self { nodes: BTreeMap::new(), others });
        }
        let pairs = text.split(',').map(|pair| {
            let (node, id) = pair.split_once(':')?;
            let id = id.parse().ok().filter(|id| *id < u64::MAX)?;
            Some((NodeName::parse(node).ok()?, id))
        });
        Some(Self { nodes: pairs.collect::<Option<_>>()?, others: 0 })
    }

    /// The position of a node, if it is named.
    pub(super) fn get(&self, node: &NodeName) -> Option<u64> {
        self.nodes.get(node).copied()
    }

    /// The id after which the events of a node continue.
    pub(super) fn start(&self, node: &NodeName) -> u64 {
        self.get(node).unwrap_or(self.others)
    }

    pub(super) fn set(&mut self, node: &NodeName, id: u64) {
        self.nodes.insert(node.clone(), id);
    }

    pub(super) fn text(&self) -> String {
        let pairs: Vec<_> = self.nodes.iter().map(|(node, id)| format!("{node}:{id}")).collect();
        pairs.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn of(text: &'static str) -> Result<Option<EventCursor>, ApiError> {
        let mut headers = HeaderMap::new();
        headers.insert("last-event-id", HeaderValue::from_static(text));
        EventCursor::of(&headers)
    }

    #[test]
    fn a_cursor_has_a_position_for_each_node() {
        assert_eq!(EventCursor::of(&HeaderMap::new()).unwrap(), None);
        let cursor = of("a:7,node-2:9").unwrap().unwrap();
        let node = NodeName::parse("node-2").unwrap();
        assert_eq!(cursor.get(&node), Some(9));
        assert_eq!(cursor.text(), "a:7,node-2:9");
        assert_eq!(of("0").unwrap().unwrap(), EventCursor::default());
        assert_eq!((cursor.start(&node), of("7").unwrap().unwrap().start(&node)), (9, 7));
        for bad in [
            "",
            "-7",
            "a",
            "a:",
            "a:-1",
            "A:1",
            "a:1,",
            "a:18446744073709551615",
            "18446744073709551615",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
