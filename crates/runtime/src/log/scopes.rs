//! Named log scopes and the thresholds that can be changed while the process runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use serde::Serialize;
use tracing::Metadata;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing_subscriber::layer::{Context, Filter};

use super::level::Level;

/// Name of the scope that takes every event no other scope claims.
pub const DEFAULT_SCOPE: &str = "default";

/// Word that stands for every scope where a scope name is expected.
pub const ALL_SCOPES: &str = "all";

/// Declaration of a scope: events are put in it by `target: "<name>"`.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    name: &'static str,
    description: &'static str,
    modules: &'static [&'static str],
    level: Level,
}

impl Scope {
    /// Declares a scope that prints from `info` on.
    pub const fn new(name: &'static str, description: &'static str) -> Self {
        Scope { name, description, modules: &[], level: Level::Info }
    }

    /// Also claims the events of these crates or modules that name no target of their own.
    pub const fn covering(mut self, modules: &'static [&'static str]) -> Self {
        self.modules = modules;
        self
    }

    /// Sets the threshold that holds until a flag or an operator changes it.
    pub const fn at(mut self, level: Level) -> Self {
        self.level = level;
        self
    }
}

/// The scopes every process has.
const BUILT_IN: [Scope; 3] = [
    Scope::new(DEFAULT_SCOPE, "Messages of no particular scope"),
    Scope::new("grpc", "gRPC, HTTP/2 and connection handling")
        .covering(&["tonic", "h2", "hyper", "hyper_util", "tower"])
        .at(Level::None),
    Scope::new("klog", "Kubernetes client").covering(&["kube", "kube_client", "kube_core", "kube_runtime"]),
];

/// What ctrlz shows of one scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScopeInfo {
    /// Scope name.
    pub name: String,
    /// What is logged in it.
    pub description: String,
    /// Threshold of printed events.
    pub output_level: Level,
    /// Threshold of events printed with a stack trace.
    pub stack_trace_level: Level,
    /// Whether events carry file and line.
    pub log_callers: bool,
}

/// A scope name this build does not have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown log scope {name:?}")]
pub struct UnknownScope {
    /// The name as given.
    pub name: String,
}

/// Thresholds of one scope.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) output: Level,
    pub(super) stack: Level,
    pub(super) callers: bool,
}

#[derive(Default)]
struct Table {
    scopes: BTreeMap<&'static str, (&'static str, Settings)>,
    modules: BTreeMap<&'static str, &'static str>,
}

/// The scopes of this process; clones share state.
#[derive(Clone)]
pub struct Scopes {
    table: Arc<RwLock<Table>>,
}

impl Default for Scopes {
    fn default() -> Self {
        Scopes::new()
    }
}

impl Scopes {
    /// The built-in scopes: `default`, `grpc` and `klog`.
    pub fn new() -> Self {
        let scopes = Scopes { table: Arc::default() };
        scopes.register(&BUILT_IN);
        scopes
    }

    /// Adds scopes; a name already present keeps its settings.
    pub fn register(&self, scopes: &[Scope]) {
        let mut table = self.table.write();
        for scope in scopes {
            let settings = Settings { output: scope.level, stack: Level::None, callers: false };
            table.scopes.entry(scope.name).or_insert((scope.description, settings));
            table.modules.extend(scope.modules.iter().map(|module| (*module, scope.name)));
        }
        drop(table);
        tracing::callsite::rebuild_interest_cache();
    }

    /// All scopes by name.
    pub fn list(&self) -> Vec<ScopeInfo> {
        let table = self.table.read();
        table.scopes.iter().map(|(name, entry)| info(name, entry)).collect()
    }

    /// Finds a scope by name.
    pub fn get(&self, name: &str) -> Option<ScopeInfo> {
        let table = self.table.read();
        table.scopes.get_key_value(name).map(|(name, entry)| info(name, entry))
    }

    /// Sets what is printed of a scope, or of every scope if the name is `all`.
    pub fn set(&self, name: &str, level: Level) -> Result<(), UnknownScope> {
        self.change(name, |settings| settings.output = level)
    }

    /// Sets from which level on events of a scope carry a stack trace.
    pub fn set_stack_trace(&self, name: &str, level: Level) -> Result<(), UnknownScope> {
        self.change(name, |settings| settings.stack = level)
    }

    /// Sets whether events of a scope carry file and line.
    pub fn set_callers(&self, name: &str, callers: bool) -> Result<(), UnknownScope> {
        self.change(name, |settings| settings.callers = callers)
    }

    fn change(&self, name: &str, apply: impl Fn(&mut Settings)) -> Result<(), UnknownScope> {
        let mut table = self.table.write();
        if name == ALL_SCOPES {
            table.scopes.values_mut().for_each(|(_, settings)| apply(settings));
        } else {
            let (_, settings) =
                table.scopes.get_mut(name).ok_or_else(|| UnknownScope { name: name.to_owned() })?;
            apply(settings);
        }
        drop(table);
        tracing::callsite::rebuild_interest_cache();
        Ok(())
    }

    /// The scope that owns events of this target, with its settings.
    pub(super) fn resolve(&self, target: &str) -> (&'static str, Settings) {
        let table = self.table.read();
        let name = table.owner(target);
        (name, table.scopes[name].1)
    }

    fn allows(&self, metadata: &Metadata<'_>) -> bool {
        let (_, settings) = self.resolve(metadata.target());
        Level::from_tracing(*metadata.level()).is_some_and(|level| level <= settings.output)
    }
}

impl Table {
    fn owner(&self, target: &str) -> &'static str {
        if let Some((name, _)) = self.scopes.get_key_value(target) {
            return name;
        }
        let mut module = target;
        loop {
            if let Some(name) = self.modules.get(module) {
                return name;
            }
            match module.rsplit_once("::") {
                Some((parent, _)) => module = parent,
                None => return DEFAULT_SCOPE,
            }
        }
    }
}

fn info(name: &str, (description, settings): &(&'static str, Settings)) -> ScopeInfo {
    ScopeInfo {
        name: name.to_owned(),
        description: (*description).to_owned(),
        output_level: settings.output,
        stack_trace_level: settings.stack,
        log_callers: settings.callers,
    }
}

/// Decides once per call site, and again after each change, so that a disabled event costs one atomic load.
impl<S> Filter<S> for Scopes {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        self.allows(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.allows(metadata) { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let table = self.table.read();
        let finest = table.scopes.values().map(|(_, settings)| settings.output).max();
        Some(match finest.unwrap_or(Level::None) {
            Level::None | Level::Fatal => LevelFilter::OFF,
            Level::Error => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(scopes: &Scopes, name: &str) -> Level {
        scopes.get(name).expect("scope is registered").output_level
    }

    #[test]
    fn lists_scopes_by_name_with_description() {
        let scopes = Scopes::new();
        scopes.register(&[Scope::new("ads", "Discovery streams")]);
        let names: Vec<_> = scopes.list().into_iter().map(|scope| scope.name).collect();
        assert_eq!(names, ["ads", "default", "grpc", "klog"]);
        assert_eq!(scopes.get("ads").unwrap().description, "Discovery streams");
    }

    #[test]
    fn keeps_level_when_registered_again() {
        let scopes = Scopes::new();
        scopes.register(&[Scope::new("ads", "Discovery streams")]);
        scopes.set("ads", Level::Debug).unwrap();
        scopes.register(&[Scope::new("ads", "Discovery streams")]);
        assert_eq!(level(&scopes, "ads"), Level::Debug);
    }

    #[test]
    fn all_sets_every_scope() {
        let scopes = Scopes::new();
        scopes.set(ALL_SCOPES, Level::Error).unwrap();
        assert!(scopes.list().iter().all(|scope| scope.output_level == Level::Error));
    }

    #[test]
    fn names_the_scope_it_does_not_have() {
        let error = Scopes::new().set("nope", Level::Info).unwrap_err();
        assert_eq!(error.to_string(), "unknown log scope \"nope\"");
    }

    #[test]
    fn target_belongs_to_named_scope_then_covering_module_then_default() {
        let scopes = Scopes::new();
        scopes.register(&[Scope::new("ads", "Discovery streams").covering(&["canopus_xds::server"])]);
        let owner = |target: &str| scopes.resolve(target).0;
        assert_eq!(owner("ads"), "ads");
        assert_eq!(owner("canopus_xds::server::push"), "ads");
        assert_eq!(owner("canopus_xds::client"), "default");
        assert_eq!(owner("h2::codec"), "grpc");
        assert_eq!(owner("h2x::codec"), "default");
    }

    #[test]
    fn serialises_as_ctrlz_expects() {
        let json = serde_json::to_value(Scopes::new().get("grpc").unwrap()).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "name": "grpc",
                "description": "gRPC, HTTP/2 and connection handling",
                "output_level": "none",
                "stack_trace_level": "none",
                "log_callers": false,
            })
        );
    }
}
