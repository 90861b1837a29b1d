//! Extension configurations: which module they want, and the same configuration with a local file.

use std::sync::Arc;
use std::time::{Duration, Instant};

use canopus_proto::envoy::config::core::v3::async_data_source::Specifier as Source;
use canopus_proto::envoy::config::core::v3::data_source::Specifier as Local;
use canopus_proto::envoy::config::core::v3::{AsyncDataSource, DataSource, TypedExtensionConfig};
use canopus_proto::envoy::config::rbac::v3::Rbac as Rules;
use canopus_proto::envoy::extensions::filters::{http as http_filters, network as network_filters};
use canopus_proto::envoy::extensions::wasm::v3::plugin_config::Vm;
use canopus_proto::envoy::extensions::wasm::v3::{FailurePolicy, PluginConfig, VmConfig};
use canopus_proto::udpa::r#type::v1::TypedStruct;
use canopus_proto::{Any, Message, Name, json, type_url};
use tokio::task::JoinSet;
use tracing::error;

use super::{ModuleRequest, PullPolicy, PullSecret, WasmModules};

type HttpWasm = http_filters::wasm::v3::Wasm;
type NetworkWasm = network_filters::wasm::v3::Wasm;

const SECRET: &str = "ISTIO_META_WASM_IMAGE_PULL_SECRET";
const POLICY: &str = "ISTIO_META_WASM_IMAGE_PULL_POLICY";
const VERSION: &str = "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION";
/// Variables for the agent alone.
const INTERNAL: &str = "ISTIO_META_";
/// Fetching may take so long unless the configuration says otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
const ALLOW: &str = "wasm-default-allow";
const DENY: &str = "wasm-default-deny";

/// Which kind of filter a configuration is of.
enum Filter {
    Http(HttpWasm),
    Network(NetworkWasm),
}

impl WasmModules {
    /// The resources with local files for remote modules, or why one cannot be used at all.
    pub async fn localise(self: &Arc<Self>, resources: Vec<Any>) -> Result<Vec<Any>, String> {
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for (index, resource) in resources.into_iter().enumerate() {
            let modules = Arc::clone(self);
            tasks.spawn(async move { (index, modules.localise_one(resource).await) });
        }
        let (mut results, mut problems) = (Vec::new(), Vec::new());
        while let Some(done) = tasks.join_next().await {
            match done {
                Ok((index, Ok(resource))) => results.push((index, resource)),
                Ok((_, Err(problem))) => problems.push(problem),
                Err(problem) => problems.push(problem.to_string()),
            }
        }
        self.counters.duration.observe(started.elapsed().as_secs_f64() * 1000.0);
        if !problems.is_empty() {
            problems.sort();
            return Err(problems.join("; "));
        }
        results.sort_by_key(|(index, _)| *index);
        Ok(results.into_iter().map(|(_, resource)| resource).collect())
    }

    async fn localise_one(&self, resource: Any) -> Result<Any, String> {
        let count = |result: &str| self.counters.conversions.with([result]).inc();
        let mut extension: TypedExtensionConfig =
            decode(&resource).inspect_err(|_| count("unmarshal_failure"))?;
        let Some(typed) = &extension.typed_config else {
            count("unmarshal_failure");
            return Err(format!("extension {}: there is no typed config in it", extension.name));
        };
        let filter = read_filter(typed)
            .map_err(|reason| format!("extension {}: {reason}", extension.name))
            .inspect_err(|_| count("unmarshal_failure"))?;
        let Some(mut filter) = filter else {
            count("no_remote_load");
            return Ok(resource);
        };
        let result = self.fetch_for(&extension.name, filter.plugin()).await;
        extension.typed_config = Some(match result {
            Ok(()) => {
                count("success");
                filter.encode()
            }
            Err((result, reason)) => {
                count(result);
                let fails_open = filter.fails_open();
                let effect = if fails_open { "everything is let through" } else { "nothing is let through" };
                error!(target: "wasm", "extension {}: {reason}; {effect}", extension.name);
                filter.substitute(fails_open)
            }
        });
        Ok(encode(&extension))
    }

    /// Fetches the module of a plug-in and has its configuration refer to the file.
    async fn fetch_for(
        &self,
        resource: &str,
        plugin: &mut PluginConfig,
    ) -> Result<(), (&'static str, String)> {
        let name = plugin.name.clone();
        let Some(Vm::VmConfig(vm)) = &mut plugin.vm else { return Ok(()) };
        let (secret, policy, version) = take_internal(vm);
        if secret.as_deref() == Some("") {
            let reason = format!("cannot fetch Wasm module {name}: missing image pulling secret");
            return Err(("fetch_failure", reason));
        }
        let Some(Source::Remote(remote)) = vm.code.as_ref().and_then(|code| code.specifier.as_ref()) else {
            return Ok(());
        };
        let Some(uri) = &remote.http_uri else {
            return Err(("miss_remote_fetch_hint", format!("the remote module of {name} has no httpUri")));
        };
        let seconds = |duration: &canopus_proto::google::protobuf::Duration| {
            Duration::new(
                u64::try_from(duration.seconds).unwrap_or_default(),
                u32::try_from(duration.nanos).unwrap_or_default(),
            )
        };
        let request = ModuleRequest {
            url: uri.uri.clone(),
            // Parity: Istio writes this where there is no checksum, because Envoy wants one.
            checksum: if remote.sha256 == "nil" { String::new() } else { remote.sha256.clone() },
            resource: resource.to_owned(),
            version: version.unwrap_or_default(),
            timeout: uri.timeout.as_ref().map_or(DEFAULT_TIMEOUT, seconds),
            secret: secret.map(PullSecret::new),
            policy: match policy.as_deref() {
                Some("IfNotPresent") => PullPolicy::IfNotPresent,
                Some("Always") => PullPolicy::Always,
                _ => PullPolicy::Unspecified,
            },
        };
        let path = self.module(&request).await;
        let path = path.map_err(|error| ("fetch_failure", format!("cannot fetch Wasm module: {error}")))?;
        let file = Local::Filename(path.to_string_lossy().into_owned());
        let source = DataSource { specifier: Some(file), ..Default::default() };
        vm.code = Some(AsyncDataSource { specifier: Some(Source::Local(source)) });
        Ok(())
    }
}

/// Takes the variables out that are meant for the agent and must not reach the module: secret, policy, version.
fn take_internal(vm: &mut VmConfig) -> (Option<String>, Option<String>, Option<String>) {
    let Some(variables) = &mut vm.environment_variables else { return (None, None, None) };
    let values = &mut variables.key_values;
    let taken = (values.remove(SECRET), values.remove(POLICY), values.remove(VERSION));
    values.retain(|name, _| !name.starts_with(INTERNAL));
    if values.is_empty() && variables.host_env_keys.is_empty() {
        vm.environment_variables = None;
    }
    taken
}

/// The Wasm filter with a remote module that this is; `None` if it is another filter, or has its module.
fn read_filter(typed: &Any) -> Result<Option<Filter>, String> {
    let (http, network) = (type_url::<HttpWasm>(), type_url::<NetworkWasm>());
    let filter = if typed.type_url == http {
        Filter::Http(decode(typed)?)
    } else if typed.type_url == network {
        Filter::Network(decode(typed)?)
    } else if typed.type_url == type_url::<TypedStruct>() {
        let inner: TypedStruct = decode(typed)?;
        if inner.type_url == http {
            Filter::Http(from_struct(&inner)?)
        } else if inner.type_url == network {
            Filter::Network(from_struct(&inner)?)
        } else {
            return Ok(None);
        }
    } else {
        return Ok(None);
    };
    match filter.source() {
        Some(Source::Remote(_)) => Ok(Some(filter)),
        Some(Source::Local(_)) => Ok(None),
        None => Err("the Wasm filter has neither a remote nor a local module".to_owned()),
    }
}

impl Filter {
    fn config(&self) -> Option<&PluginConfig> {
        match self {
            Self::Http(filter) => filter.config.as_ref(),
            Self::Network(filter) => filter.config.as_ref(),
        }
    }

    fn plugin(&mut self) -> &mut PluginConfig {
        match self {
            Self::Http(filter) => filter.config.get_or_insert_default(),
            Self::Network(filter) => filter.config.get_or_insert_default(),
        }
    }

    fn source(&self) -> Option<&Source> {
        let Some(Vm::VmConfig(vm)) = &self.config()?.vm else { return None };
        vm.code.as_ref()?.specifier.as_ref()
    }

    #[expect(deprecated, reason = "older control planes say it so")]
    fn fails_open(&self) -> bool {
        let Some(config) = self.config() else { return false };
        match FailurePolicy::try_from(config.failure_policy) {
            Ok(FailurePolicy::Unspecified) | Err(_) => config.fail_open,
            Ok(policy) => policy == FailurePolicy::FailOpen,
        }
    }

    fn encode(&self) -> Any {
        match self {
            Self::Http(filter) => encode(filter),
            Self::Network(filter) => encode(filter),
        }
    }

    /// What stands in for the filter: a policy without rules allows everything, one with empty rules nothing.
    fn substitute(&self, fails_open: bool) -> Any {
        let rules = (!fails_open).then(Rules::default);
        let prefix = if fails_open { ALLOW } else { DENY }.to_owned();
        match self {
            Self::Http(_) => encode(&http_filters::rbac::v3::Rbac {
                rules,
                rules_stat_prefix: prefix,
                ..Default::default()
            }),
            Self::Network(_) => {
                encode(&network_filters::rbac::v3::Rbac { rules, stat_prefix: prefix, ..Default::default() })
            }
        }
    }
}

fn decode<M: Message + Name + Default>(any: &Any) -> Result<M, String> {
    M::decode(any.value.clone()).map_err(|error| format!("{}: {error}", M::NAME))
}

fn encode<M: Message + Name>(message: &M) -> Any {
    Any { type_url: type_url::<M>(), value: message.encode_to_vec().into() }
}

fn from_struct<M: Message + Name + Default>(typed: &TypedStruct) -> Result<M, String> {
    let fields = typed.value.clone().unwrap_or_default();
    let node = json::write(&fields);
    json::read::<M>(&node, json::Unknown::Report)
        .map(|decoded| decoded.value)
        .map_err(|problems| problems.to_string())
}
