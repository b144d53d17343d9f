//! The network of a sandbox: where it may connect to, read and changed while it runs.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::denied::DeniedView;
use crate::foundation::error::ApiError;
use crate::foundation::input::PathIds;
use crate::foundation::json::{StrictJson, not_null};
use crate::routes::sandboxes::credentials::{
    self, CredentialBody, CredentialList, CredentialSelector, CredentialView,
};
use axum::Json;
use axum::extract::State;
use isolet_sandbox::network::Opening;
use isolet_sandbox::{Network, NetworkChange, NetworkSpec, SandboxInfo};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// The network rules of a sandbox.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Network)]
pub(crate) struct NetworkView {
    /// `none`: loopback only. `open`: everything that is not closed to every sandbox. `rules`: what
    /// `allow` matches and `deny` does not.
    mode: &'static str,
    /// The rules of allowed destinations.
    allow: Vec<String>,
    /// The rules of denied destinations. They take precedence over `allow`.
    deny: Vec<String>,
    /// The network profile that the rules were taken from. Absent if there is none, or if the rules
    /// were changed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    profile: Option<String>,
    /// The credentials that the server injects into requests. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    credentials: Vec<CredentialView>,
}

impl From<SandboxInfo> for NetworkView {
    fn from(info: SandboxInfo) -> Self {
        let network = &info.network;
        Self {
            credentials: credentials::views(&info),
            mode: network.mode().word(),
            allow: network.allow().to_vec(),
            deny: network.deny().to_vec(),
            profile: network.profile().map(ToOwned::to_owned),
        }
    }
}

/// Network rules. Each rule is a host, `*.` and a host, an address, a network (`10.0.0.0/8`) or
/// `*`, optionally followed by `:PORT`. What no rule allows is denied. At most 256 rules in each
/// list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = NetworkRules)]
pub(crate) struct RulesBody {
    /// The rules of allowed destinations.
    pub(crate) allow: Vec<String>,
    /// Denied destinations. They take precedence over `allow`.
    pub(crate) deny: Vec<String>,
}

/// `"none"`, `"open"`, or rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = NetworkSpec)]
pub(crate) enum NetworkBody {
    Mode(NetworkMode),
    Rules(RulesBody),
}

/// `none`: loopback only. `open`: everything that is not closed to every sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NetworkMode {
    None,
    Open,
}

impl<'de> Deserialize<'de> for NetworkBody {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Wanted;
        impl<'de> Visitor<'de> for Wanted {
            type Value = NetworkBody;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"none\", \"open\", or an object with allow and deny")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<NetworkBody, E> {
                match word {
                    "none" => Ok(NetworkBody::Mode(NetworkMode::None)),
                    "open" => Ok(NetworkBody::Mode(NetworkMode::Open)),
                    other => Err(E::invalid_value(Unexpected::Str(other), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NetworkBody, A::Error> {
                RulesBody::deserialize(MapAccessDeserializer::new(map)).map(NetworkBody::Rules)
            }
        }
        reader.deserialize_any(Wanted)
    }
}

/// Resolves the network of a request, in which only one of the two fields may be present.
pub(crate) async fn wanted(
    app: &App,
    caller: &Caller,
    network: Option<NetworkBody>,
    profile: Option<String>,
) -> Result<Option<Network>, ApiError> {
    let wish = match (network, profile) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(ApiError::bad_field(
                "network",
                "pass network or network_profile, not both",
            ));
        }
        (None, Some(name)) => NetworkSpec::Profile(name),
        (Some(NetworkBody::Mode(NetworkMode::None)), None) => NetworkSpec::None,
        (Some(NetworkBody::Mode(NetworkMode::Open)), None) => NetworkSpec::Open,
        (Some(NetworkBody::Rules(RulesBody { allow, deny })), None) => {
            NetworkSpec::Rules { allow, deny }
        }
    };
    Ok(Some(app.service.network_of(&caller.tenant, wish).await?))
}

/// A rule, or an entry of `denied` from an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum AllowedDestination {
    Rule(String),
    Denied(DeniedView),
}

impl<'de> Deserialize<'de> for AllowedDestination {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Rule;
        impl<'de> Visitor<'de> for Rule {
            type Value = AllowedDestination;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rule, or an entry of denied")
            }

            fn visit_str<E: de::Error>(self, rule: &str) -> Result<AllowedDestination, E> {
                Ok(AllowedDestination::Rule(rule.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AllowedDestination, A::Error> {
                DeniedView::deserialize(MapAccessDeserializer::new(map))
                    .map(AllowedDestination::Denied)
            }
        }
        reader.deserialize_any(Rule)
    }
}

/// Changes to network rules. Fields that are left out change nothing. Sending the same change twice
/// has no further effect.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = UpdateNetwork)]
pub(crate) struct ChangeNetwork {
    /// Replaces the network rules.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    network: Option<NetworkBody>,
    /// Replaces the network rules by those of this profile.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    network_profile: Option<String>,
    /// Destinations to allow: rules, or entries of `denied` from an answer.
    allow_add: Vec<AllowedDestination>,
    /// Rules to remove from `allow`.
    allow_remove: Vec<String>,
    /// Rules to add to `deny`.
    deny_add: Vec<String>,
    /// Rules to remove from `deny`.
    deny_remove: Vec<String>,
    /// Credentials to inject. One with the same host, header and placeholder replaces the earlier
    /// one. At most 32 for a sandbox, 64 KiB in total.
    #[schema(value_type = Vec<CredentialBody>)]
    credentials_add: CredentialList,
    /// Credentials to remove. They are removed before `credentials_add` takes effect.
    #[schema(value_type = Vec<CredentialSelector>)]
    credentials_remove: CredentialList,
}

/// Get the network rules of a sandbox
///
/// Does not wake a sleeping sandbox.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/network", operation_id = "sandboxes_network_get", tag = "sandboxes",
    params(
        ("id" = String, Path)
    ),
    responses(
        (status = 200, description = "The network rules in force.", body = NetworkView)
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<NetworkView>, ApiError> {
    Ok(Json(app.service.get(&caller.tenant, &ids.sandbox).await?.into()))
}

/// Update the network rules of a sandbox
///
/// Changes every field in the body, or none of them if one is refused. The new rules are in force
/// when the call answers, also for open connections: the server closes those that the new rules
/// deny. To allow what a command was denied, send the `denied` list of its answer back as
/// `allow_add`. A sleeping sandbox gets its new rules when it wakes.
#[utoipa::path(
    patch, path = "/v1/sandboxes/{id}/network", operation_id = "sandboxes_network_update", tag = "sandboxes",
    params(
        ("id" = String, Path)
    ),
    request_body(content = ChangeNetwork, example = json!({"allow_add": ["api.example.com", "*.example.org:443"]})),
    responses(
        (status = 200, description = "The network rules in force.", body = NetworkView)
    )
)]
pub(crate) async fn patch(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: StrictJson<ChangeNetwork>,
) -> Result<Json<NetworkView>, ApiError> {
    let ChangeNetwork {
        network,
        network_profile,
        allow_add,
        allow_remove,
        deny_add,
        deny_remove,
        credentials_add,
        credentials_remove,
    } = body.value;
    let added = credentials_add.parse_added("credentials_add")?;
    let removed = credentials_remove.parse_removed("credentials_remove")?;
    let whole = wanted(&app, &caller, network, network_profile).await?;
    let opening = |body| match body {
        AllowedDestination::Rule(rule) => Opening::Rule(rule),
        AllowedDestination::Denied(denied) => Opening::Denied(denied.into()),
    };
    let allow_add = allow_add.into_iter().map(opening).collect();
    let change = NetworkChange {
        whole,
        allow_add,
        allow_remove,
        deny_add,
        deny_remove,
        add_credentials: added,
        remove_credentials: removed,
    };
    Ok(Json(app.service.network(&caller.tenant, &ids.sandbox, change).await?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foundation::json::parse;

    #[test]
    fn a_network_is_a_word_or_rules_and_nothing_else() {
        let read = |text: &str| {
            parse::<ChangeNetwork>(format!("{{\"network\":{text}}}").as_bytes())
                .map(|change| change.network)
        };
        assert_eq!(read("\"none\"").unwrap(), Some(NetworkBody::Mode(NetworkMode::None)));
        assert_eq!(read("\"open\"").unwrap(), Some(NetworkBody::Mode(NetworkMode::Open)));
        let rules = RulesBody { allow: vec!["a.b".into()], deny: Vec::new() };
        assert_eq!(read("{\"allow\":[\"a.b\"]}").unwrap(), Some(NetworkBody::Rules(rules)));
        for bad in ["\"rules\"", "null", "1", "[]", "{\"allow\":null}", "{\"alow\":[]}"] {
            let failure = read(bad).unwrap_err();
            assert!(failure.message.contains("network"), "{bad}: {}", failure.message);
        }
    }

    #[test]
    fn an_opening_is_a_rule_or_an_entry_of_denied() {
        let text = br#"{"allow_add":["a.b:443",
            {"host":"c.d","port":null,"protocol":"dns","rule":"default","times":3},{"host":"e.f"}]}"#;
        let change = parse::<ChangeNetwork>(text).unwrap();
        assert_eq!(change.allow_add.len(), 3);
        assert_eq!(change.allow_add[0], AllowedDestination::Rule("a.b:443".into()));
        assert!(matches!(&change.allow_add[1], AllowedDestination::Denied(_)));
        for bad in
            [&br#"{"allow_add":[1]}"#[..], br#"{"allow_add":[{"hots":"a"}]}"#, br#"{"nope":1}"#]
        {
            assert!(parse::<ChangeNetwork>(bad).is_err());
        }
    }
}
