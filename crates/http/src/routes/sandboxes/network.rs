//! The network of a sandbox: where it may connect to, read and changed while it runs.

use crate::{
    app::App,
    auth::caller::Caller,
    foundation::{
        denied::DeniedView,
        error::ApiError,
        input::PathIds,
        json::{StrictJson, not_null},
    },
    routes::sandboxes::credentials::{
        self, CredentialBody, CredentialList, CredentialName, CredentialView,
    },
};
use axum::{Json, extract::State};
use isolet_sandbox::{Info, Network, NetworkChange, NetworkSpec, network::Opening};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, Unexpected, Visitor, value::MapAccessDeserializer},
};
use std::fmt;
use utoipa::ToSchema;

/// Where a sandbox may connect to.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NetworkView {
    /// `none`: loopback alone. `open`: everything but what is closed to every sandbox. `rules`:
    /// what `allow` has and `deny` has not.
    mode: &'static str,
    /// What is allowed.
    allow: Vec<String>,
    /// What is refused, also where `allow` has it.
    deny: Vec<String>,
    /// The profile that these rules were taken from, unless they were changed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<String>,
    /// What is put into its requests on their way out; only where something is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    credentials: Vec<CredentialView>,
}

impl From<Info> for NetworkView {
    fn from(info: Info) -> Self {
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

/// Rules, each a host, `*.` and a host, an address, a network (`10.0.0.0/8`) or `*`, with or without
/// `:PORT`. What no rule allows is refused. At most 256 of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RulesBody {
    /// What is allowed.
    allow: Vec<String>,
    /// What is refused, also where `allow` has it.
    deny: Vec<String>,
}

/// A network in a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NetworkBody {
    /// `"none"`
    None,
    /// `"open"`
    Open,
    #[serde(untagged)]
    Rules(RulesBody),
}

/// What stands for it in the document.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
#[allow(dead_code)]
pub(crate) enum NetworkWanted {
    Word(NetworkWord),
    Rules(RulesBody),
}

/// Loopback alone, or everything but what is closed to every sandbox.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code)]
pub(crate) enum NetworkWord {
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
                    "none" => Ok(NetworkBody::None),
                    "open" => Ok(NetworkBody::Open),
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
                "give network or network_profile, not both",
            ));
        }
        (None, Some(name)) => NetworkSpec::Profile(name),
        (Some(NetworkBody::None), None) => NetworkSpec::None,
        (Some(NetworkBody::Open), None) => NetworkSpec::Open,
        (Some(NetworkBody::Rules(RulesBody { allow, deny })), None) => {
            NetworkSpec::Rules { allow, deny }
        }
    };
    Ok(Some(app.service.network_of(&caller.tenant, wish).await?))
}

/// A rule, or an entry of `denied` from a response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum OpeningBody {
    Rule(String),
    Denied(DeniedView),
}

impl<'de> Deserialize<'de> for OpeningBody {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Rule;
        impl<'de> Visitor<'de> for Rule {
            type Value = OpeningBody;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rule, or an entry of denied")
            }

            fn visit_str<E: de::Error>(self, rule: &str) -> Result<OpeningBody, E> {
                Ok(OpeningBody::Rule(rule.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OpeningBody, A::Error> {
                DeniedView::deserialize(MapAccessDeserializer::new(map)).map(OpeningBody::Denied)
            }
        }
        reader.deserialize_any(Rule)
    }
}

/// What stands for it in the document.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
#[allow(dead_code)]
pub(crate) enum OpeningWanted {
    Rule(String),
    Denied(DeniedView),
}

/// What is to change; the rest stays. Done twice it is as done once.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ChangeNetwork {
    /// In place of the network that is.
    #[serde(deserialize_with = "not_null")]
    #[schema(value_type = Option<NetworkWanted>, nullable = false)]
    network: Option<NetworkBody>,
    /// The rules of this profile, as it is now, in place of those that are.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    network_profile: Option<String>,
    /// Also allowed: rules, or entries of `denied` as they were told.
    #[schema(value_type = Vec<OpeningWanted>)]
    allow_add: Vec<OpeningBody>,
    /// No longer allowed by themselves: rules as they stand in `allow`.
    allow_remove: Vec<String>,
    /// Also refused.
    deny_add: Vec<String>,
    /// No longer refused by themselves: rules as they stand in `deny`.
    deny_remove: Vec<String>,
    /// Also put into its requests; for the same host, header and placeholder in place of the one
    /// before. At most 32 of a sandbox, of 64 KiB together.
    #[schema(value_type = Vec<CredentialBody>)]
    credentials_add: CredentialList,
    /// No longer put into its requests; done before `credentials_add`.
    #[schema(value_type = Vec<CredentialName>)]
    credentials_remove: CredentialList,
}

/// Where a sandbox may connect to. Wakes nothing.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/network", tag = "sandboxes",
    params(("id" = String, Path)),
    responses((status = 200, body = NetworkView), (status = 404, body = ApiError)))]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<NetworkView>, ApiError> {
    Ok(Json(app.service.get(&caller.tenant, &ids.sandbox).await?.into()))
}

/// Changes where a sandbox may connect to: all of the fields, or nothing.
///
/// Holds from the answer on, also for connections that run: what the new rules forbid is cut. What a
/// command was refused is opened by `{"allow_add": denied}` with the `denied` of its answer. A sandbox
/// that sleeps wakes with its new network.
#[utoipa::path(patch, path = "/v1/sandboxes/{id}/network", tag = "sandboxes",
    params(("id" = String, Path)), request_body = ChangeNetwork,
    responses((status = 200, body = NetworkView), (status = "4XX", body = ApiError), (status = "5XX", body = ApiError)))]
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
    let lend = credentials_add.lend("credentials_add")?;
    let unlend = credentials_remove.unlend("credentials_remove")?;
    let whole = wanted(&app, &caller, network, network_profile).await?;
    let opening = |body| match body {
        OpeningBody::Rule(rule) => Opening::Rule(rule),
        OpeningBody::Denied(denied) => Opening::Denied(denied.into()),
    };
    let allow_add = allow_add.into_iter().map(opening).collect();
    let change =
        NetworkChange { whole, allow_add, allow_remove, deny_add, deny_remove, lend, unlend };
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
        assert_eq!(read("\"none\"").unwrap(), Some(NetworkBody::None));
        assert_eq!(read("\"open\"").unwrap(), Some(NetworkBody::Open));
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
        assert_eq!(change.allow_add[0], OpeningBody::Rule("a.b:443".into()));
        assert!(matches!(&change.allow_add[1], OpeningBody::Denied(_)));
        for bad in
            [&br#"{"allow_add":[1]}"#[..], br#"{"allow_add":[{"hots":"a"}]}"#, br#"{"nope":1}"#]
        {
            assert!(parse::<ChangeNetwork>(bad).is_err());
        }
    }
}
