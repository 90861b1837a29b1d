//! Questions over xDS: `istio.io/debug`, and the types istioctl has for the state of proxies.

use canopus_engine::QueryError;
use canopus_proto::Any;
use canopus_proto::envoy::admin::v3::UpdateFailureState;
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::envoy::service::status::v3::client_config::GenericXdsConfig;
use canopus_proto::envoy::service::status::v3::{ClientConfig, ConfigStatus};
use canopus_proto::google::protobuf::{Struct, Timestamp, Value, value::Kind};
use canopus_proto::resource::Resource;
use canopus_runtime::flags::{CLUSTER_ID, ENABLE_DEBUG_ENDPOINT_AUTH, POD_NAME};
use canopus_runtime::version::BuildInfo;
use canopus_xds::{Code, Interest, Refusal, ResourceSet, types};
use serde_json::json;

use super::clients::watched;
use super::{Caller, Debug, Question, config_dump};
use crate::push::{Connection, Stamp, TypeStatus};

/// How far each proxy is.
const SYNC: &str = "istio.io/debug/syncz";
/// What one proxy gets.
const DUMP: &str = "istio.io/debug/config_dump";

impl Debug {
    /// Answers a question that came over a client's stream.
    pub fn answer_xds(
        &self,
        client: &Connection,
        type_url: &str,
        interest: &Interest,
    ) -> Result<ResourceSet, Refusal> {
        let names: Vec<String> =
            interest.names().into_iter().flat_map(|names| names.iter()).map(ToString::to_string).collect();
        let caller = client.proxy.identity.clone().map(Caller::Proven);
        if type_url == types::DEBUG {
            let caller = caller.ok_or_else(unauthenticated)?;
            return self.plain(caller, &names);
        }
        let caller = match caller {
            Some(caller) => caller,
            None if self.settings().flags.get(ENABLE_DEBUG_ENDPOINT_AUTH) => return Err(unauthenticated()),
            None => Caller::Trusted,
        };
        match type_url {
            SYNC => Ok(self.sync_status(&caller)),
            DUMP => {
                self.dump(&caller, &names).map_err(|error| Refusal::new(Code::Internal, error.to_string()))
            }
            // Parity: a type that does not exist has no resources.
            _ => Ok(ResourceSet::default()),
        }
    }

    /// The control plane's name for itself, which istioctl shows beside the state of proxies.
    pub fn identifier(&self, type_url: &str) -> Option<String> {
        (type_url == SYNC).then(|| {
            let flags = &self.settings().flags;
            let id = match flags.get(POD_NAME) {
                "" => flags.get(CLUSTER_ID),
                name => name,
            };
            json!({"Component": "istiod", "ID": id, "Info": BuildInfo::current()}).to_string()
        })
    }

    /// Answers one endpoint as a resource. Errors are bodies too.
    fn plain(&self, caller: Caller, names: &[String]) -> Result<ResourceSet, Refusal> {
        let [name] = names else {
            return Err(Refusal::new(Code::InvalidArgument, "exactly one debug request is required"));
        };
        let question = Question::parse(name, caller);
        if !self.may_ask(&question.caller, &question.endpoint) {
            let Caller::Proven(identity) = &question.caller else { return Err(unauthenticated()) };
            let message =
                format!("the debug info is not available for current identity: {:?}", identity.to_string());
            return Err(Refusal::new(Code::PermissionDenied, message));
        }
        let answer = self.answer(&question);
        Ok(ResourceSet::new([Resource::new(name.as_str(), answer.body)]))
    }

    /// Parity: only proxies that say how they are configured, which leaves out whoever only asks questions.
    fn sync_status(&self, caller: &Caller) -> ResourceSet {
        let mut clients = self.clients();
        clients.retain(|client| {
            let is_proxy = client.proxy.metadata.proxy_config.is_some()
                || client.proxy.id.kind == canopus_api::node::NodeKind::Ztunnel;
            is_proxy && self.may_see(caller, client)
        });
        let status = clients
            .iter()
            .map(|client| Resource::encode(client.proxy.id.id.as_str(), &Any::pack(&client_config(client))));
        ResourceSet::new(status)
    }

    /// Parity: who asks for a proxy that is not there, or not theirs to see, gets nothing.
    fn dump(&self, caller: &Caller, names: &[String]) -> Result<ResourceSet, QueryError> {
        let [name] = names else { return Ok(ResourceSet::default()) };
        let Some(client) = self.find_client(name).filter(|client| self.may_see(caller, client)) else {
            return Ok(ResourceSet::default());
        };
        let sections = config_dump::dump(&self.dispatcher.engine_of(client.id).snapshot(), &client, false)?;
        // Sets are in the order of their names.
        let sections = (0..).zip(&sections).map(|(at, section): (u32, &Any)| {
            Resource::encode(format!("{at} {}", section.message_name()), section)
        });
        Ok(ResourceSet::new(sections))
    }
}

fn unauthenticated() -> Refusal {
    Refusal::new(Code::Unauthenticated, "authentication required")
}

fn client_config(client: &Connection) -> ClientConfig {
    let metadata = &client.proxy.metadata;
    let said = [
        ("CLUSTER_ID", &metadata.cluster_id),
        ("NAMESPACE", &metadata.namespace),
        ("ISTIO_VERSION", &metadata.istio_version),
    ];
    let said = said.into_iter().filter(|(_, text)| !text.is_empty());
    let fields =
        said.map(|(key, text)| (key.to_owned(), Value { kind: Some(Kind::StringValue(text.clone())) }));
    ClientConfig {
        node: Some(Node {
            id: client.proxy.id.id.clone(),
            metadata: Some(Struct { fields: fields.collect() }),
            ..Default::default()
        }),
        generic_xds_configs: watched(client)
            .map(|(type_url, status)| type_config(type_url, &status))
            .collect(),
        ..Default::default()
    }
}

fn type_config(type_url: String, status: &TypeStatus) -> GenericXdsConfig {
    let sent = status.sent.as_ref().map(|sent| timestamp(sent.time));
    let config_status = match (&status.rejected, &status.sent) {
        (Some(_), _) => ConfigStatus::Error,
        (None, None) => ConfigStatus::NotSent,
        (None, Some(_)) if status.is_synced() => ConfigStatus::Synced,
        (None, Some(_)) => ConfigStatus::Stale,
    };
    GenericXdsConfig {
        type_url,
        last_updated: sent,
        config_status: config_status.into(),
        error_state: status.rejected.as_ref().map(|rejected| UpdateFailureState {
            last_update_attempt: sent,
            details: rejected.message.to_string(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn timestamp(stamp: Stamp) -> Timestamp {
    let since = stamp.time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since.subsec_nanos()).unwrap_or_default(),
    }
}
