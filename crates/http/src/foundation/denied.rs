//! Network traffic that a sandbox was denied, as responses contain it and as a change of its
//! network accepts it back.

use isolet_sandbox::{Denied, NetworkDenial};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Network traffic that was denied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = DeniedTraffic)]
pub(crate) struct DeniedView {
    /// The host name if it is known, otherwise the address.
    #[schema(required = true)]
    host: String,
    /// The port. `null` for DNS lookups and for protocols without ports.
    #[schema(required = true)]
    port: Option<u16>,
    /// `tcp`, `udp`, `icmp`, `dns`, or the number of an IP protocol.
    #[schema(required = true)]
    protocol: String,
    /// Why it was denied: the rule in `deny`; `default` if no rule allows it; otherwise why it is
    /// closed to every sandbox (`host`, `private`, `link-local`, `metadata`, …).
    #[schema(required = true)]
    rule: String,
    /// How often it was denied.
    #[schema(required = true)]
    times: u32,
}

impl From<NetworkDenial> for DeniedView {
    fn from(refused: NetworkDenial) -> Self {
        let NetworkDenial { host, port, protocol, rule, times } = refused;
        Self { host, port, protocol, rule, times }
    }
}

impl From<DeniedView> for NetworkDenial {
    fn from(view: DeniedView) -> Self {
        let DeniedView { host, port, protocol, rule, times } = view;
        Self { host, port, protocol, rule, times }
    }
}

pub(crate) fn views(denied: Denied) -> Vec<DeniedView> {
    denied.list.into_iter().map(DeniedView::from).collect()
}

/// The fields of an answer about denied traffic: absent when nothing was denied.
#[derive(Debug, Default)]
pub(crate) struct DeniedFields {
    pub(crate) denied: Option<Vec<DeniedView>>,
    /// How much more was denied than the list holds; absent when the list is complete.
    pub(crate) denied_lost: Option<u64>,
}

impl From<Denied> for DeniedFields {
    fn from(denied: Denied) -> Self {
        if denied == Denied::default() {
            return Self::default();
        }
        let denied_lost = Some(denied.lost).filter(|lost| *lost > 0);
        Self { denied: Some(views(denied)), denied_lost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(host: &str) -> NetworkDenial {
        let protocol = "tcp".to_owned();
        let rule = "default".to_owned();
        NetworkDenial { host: host.to_owned(), port: Some(443), protocol, rule, times: 2 }
    }

    #[test]
    fn denied_traffic_is_only_written_if_there_is_some() {
        let none = DeniedFields::from(Denied::default());
        assert!(none.denied.is_none() && none.denied_lost.is_none());
        let some = DeniedFields::from(Denied { list: vec![refused("a\"b")], lost: 3 });
        assert_eq!((some.denied.as_ref().map(Vec::len), some.denied_lost), (Some(1), Some(3)));
        let complete = DeniedFields::from(Denied { list: vec![refused("a")], lost: 0 });
        assert!(complete.denied.is_some() && complete.denied_lost.is_none());
        let text = serde_json::to_string(&some.denied).unwrap();
        assert_eq!(
            text,
            r#"[{"host":"a\"b","port":443,"protocol":"tcp","rule":"default","times":2}]"#
        );
        let [back] = &serde_json::from_str::<[DeniedView; 1]>(&text).unwrap();
        assert_eq!(NetworkDenial::from(back.clone()), refused("a\"b"));
    }
}
