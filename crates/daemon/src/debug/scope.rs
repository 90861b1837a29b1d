//! What a proxy can see.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::Object;
use canopus_engine::{Ctx, Engine, Query, QueryError};
use canopus_mesh::audience::Caller;
use canopus_mesh::audience::View;
use canopus_mesh::destination_rule::{Rule, RulesFor};
use canopus_mesh::diagnostic;
use canopus_mesh::dump::{self, DumpSelection};
use canopus_mesh::list::List;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::scope::{Scope, scope};
use canopus_mesh::service::Service;
use canopus_mesh::world::Objects;
use canopus_proto::json;
use serde_json::{Map, Value, json};

use super::registry::{service_json, time};
use super::{Answer, Debug, Question};

/// The name of a scope that no Sidecar narrows.
const DEFAULT: &str = "default-sidecar";

impl Debug {
    /// Services with their endpoints and the objects behind them; with `proxyID`, what a proxy sees and is subject to.
    /// `service` and `namespace` narrow it, `dependents` says what depends on each object.
    pub(super) fn world(&self, question: &Question) -> Result<Answer, QueryError> {
        let client = match self.optional_client(question) {
            Ok(client) => client,
            Err(answer) => return Ok(answer),
        };
        let given = |key| question.parameters.get(key).filter(|text| !text.is_empty()).map(str::to_owned);
        let selection = DumpSelection {
            service: given("service"),
            namespace: given("namespace"),
            proxy: client.map(|client| client.proxy.clone()),
            dependents: question.parameters.has("dependents"),
        };
        let world = dump::dump_mesh(self.engine(), &selection)?;
        Ok(Answer::json(question, &serde_json::to_value(world).unwrap_or_default()))
    }

    /// What is wrong with objects that are valid by themselves; `namespace` and `severity` narrow it.
    pub(super) fn diagnostics(&self, question: &Question) -> Result<Answer, QueryError> {
        let mut found = diagnostic::all_diagnostics(&self.engine().snapshot())?;
        found.extend(self.held());
        found.extend(self.expiring());
        found.sort();
        if let Some(namespace) = question.parameters.get("namespace").filter(|text| !text.is_empty()) {
            found.retain(|one| *one.object.namespace == *namespace);
        }
        if let Some(severity) = question.parameters.get("severity").filter(|text| !text.is_empty()) {
            found.retain(|one| one.severity.name() == severity);
        }
        Ok(Answer::json(question, &serde_json::to_value(found).unwrap_or_default()))
    }

    /// What the Sidecar of a proxy lets it see.
    pub(super) fn sidecarz(&self, question: &Question) -> Result<Answer, QueryError> {
        let client = match self.client(question) {
            Ok(client) => client,
            Err(answer) => return Ok(answer),
        };
        let visible = self.engine().get::<Visible>(&client.proxy)?;
        let shown = Shown { engine: self.engine(), domain: self.settings().domain.to_string() };
        let version = self.engine().revision().number().to_string();
        Ok(Answer::json(question, &shown.scope(&visible, client.proxy.namespace(), version)))
    }
}

/// The scope of a proxy, and the rules for what is in it.
#[derive(PartialEq)]
struct ProxyScope {
    scope: Arc<Scope>,
    rules: BTreeMap<Arc<str>, Vec<Arc<Rule>>>,
}

/// What a proxy sees.
struct Visible;

impl Query for Visible {
    const NAME: &'static str = "debug_scope";
    type Key = Proxy;
    type Value = ProxyScope;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> ProxyScope {
        let caller = Caller::new(ctx, &View::new(ctx, proxy));
        let scope = scope(ctx, &caller.scope);
        let rules = scope.services().iter().map(|service| {
            let rules = ctx.get::<RulesFor>(&(caller.namespace.clone(), service.key()));
            (service.host.clone(), rules.as_ref().clone())
        });
        let rules = rules.filter(|(_, rules)| !rules.is_empty()).collect();
        ProxyScope { scope, rules }
    }
}

struct Shown<'a> {
    engine: &'a Engine,
    domain: String,
}

impl Shown<'_> {
    fn scope(&self, proxy_scope: &ProxyScope, namespace: &str, version: String) -> Value {
        let scope = &proxy_scope.scope;
        let by_host =
            scope.services().iter().map(|service| (service.host.to_string(), self.service(service)));
        let by_host: Map<String, Value> = by_host.collect();
        let listeners: Vec<Value> =
            scope.listeners.iter().map(|listener| self.services(&listener.services)).collect();
        let rules: Map<String, Value> = proxy_scope
            .rules
            .iter()
            .map(|(host, rules)| (host.to_string(), rules.iter().map(|rule| self.rule(rule)).collect()))
            .collect();
        let name = scope.sidecar.as_ref().map_or(DEFAULT, |sidecar| &sidecar.meta.name);
        let namespace = scope.sidecar.as_ref().map_or(namespace, |sidecar| &sidecar.meta.namespace);
        json!({
            "version": version,
            "name": name,
            "namespace": namespace,
            "outboundTrafficPolicy": json::write(&scope.outbound_policy).to_json(),
            "services": self.services(scope.services()),
            "egressListenerServices": listeners,
            "servicesByHostname": by_host,
            "sidecar": scope.sidecar.as_ref().map(|sidecar| json::write(&sidecar.spec).to_json()),
            "destinationRules": rules,
        })
    }

    fn service(&self, service: &Service) -> Value {
        service_json(self.engine, service)
    }

    fn services(&self, services: &List<Service>) -> Value {
        services.iter().map(|service| self.service(service)).collect()
    }

    /// A merged rule, under the name of the object it begins with.
    fn rule(&self, rule: &Rule) -> Value {
        let from: Vec<Value> = rule
            .from
            .iter()
            .map(|origin| json!({"Namespace": origin.namespace(), "Name": origin.name()}))
            .collect();
        let exported: Map<String, Value> =
            rule.export_to.iter().map(|entry| (entry.to_string(), json!({}))).collect();
        let object = self.engine.read::<Objects>(rule.origin());
        let mut config = object.as_deref().map(|object| self.meta(object)).unwrap_or_default();
        config.insert("Spec".to_owned(), json::write(&rule.spec).to_json());
        config.insert("Status".to_owned(), json!({}));
        config.insert("Extra".to_owned(), Value::Null);
        json!({ "exportTo": exported, "from": from, "rule": config })
    }

    /// The metadata of an object as Istio has it inside.
    fn meta(&self, object: &Object) -> Map<String, Value> {
        let (meta, info) = (object.meta(), object.kind().info());
        let mut all = Map::new();
        let kind = json!({"group": info.group, "version": info.version(), "kind": info.kind});
        all.insert("type".to_owned(), kind);
        let mut say = |key: &str, value: Value| {
            let is_empty = value == "" || value == 0 || value.as_object().is_some_and(Map::is_empty);
            if !is_empty {
                all.insert(key.to_owned(), value);
            }
        };
        let texts = |labels: &canopus_base::labels::Labels| -> Value {
            labels.iter().map(|(key, text)| (key.to_owned(), Value::from(text))).collect()
        };
        say("uid", Value::from(&*meta.uid));
        say("name", Value::from(&*meta.name));
        say("namespace", Value::from(&*meta.namespace));
        say("domain", Value::from(self.domain.as_str()));
        say("labels", texts(&meta.labels));
        say("annotations", texts(&meta.annotations));
        say("resourceVersion", Value::from(&*meta.resource_version));
        say("creationTimestamp", Value::from(time(meta.creation_timestamp)));
        say("generation", Value::from(meta.generation));
        all
    }
}
