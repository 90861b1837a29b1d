//! The whole command: from its command line to rules in the kernel.

use std::io::{self, Write};
use std::path::Path;

use crate::apply::{
    ApplyError, NamespaceError, Outcome, Recorder, Runner, System, Tools, VariantChoice, add_routes,
    apply_iptables, apply_nftables, in_namespace, log_final_state, remove_routes, sidecar_routes,
};
use crate::command_line::{CommandLine, Environment};
use crate::config::ConfigError;
use crate::facts::{FactsError, HostFacts};
use crate::settings::Settings;
use crate::validation::ValidationError;
use crate::{iptables, nftables};

/// The exit code of a validation that failed. Istio's repair controller looks for it.
pub const VALIDATION_FAILED: u8 = 126;

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A setting is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The machine does not tell what is needed.
    #[error(transparent)]
    Facts(#[from] FactsError),
    /// Rules could not be applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// A dry run's output could not be written.
    #[error("cannot write what would be run to {target}: {source}")]
    Output {
        /// Where to.
        target: String,
        /// Why not.
        source: io::Error,
    },
    /// Traffic is not captured.
    #[error(
        "iptables validation failed; the workload's traffic does not reach its proxy: {0}. With istio-cni this happens \
         when a pod starts before the plugin is ready on its node: the pod is repaired or deleted if the plugin is set \
         up to do so, otherwise delete it so that it starts again"
    )]
    Validation(#[source] ValidationError),
}

impl RunError {
    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        if matches!(self, Self::Validation(_)) { VALIDATION_FAILED } else { 1 }
    }
}

impl From<NamespaceError> for RunError {
    fn from(error: NamespaceError) -> Self {
        Self::Apply(error.into())
    }
}

/// Runs the command. Dry runs print to `output`.
pub fn run(
    line: CommandLine,
    environment: Environment<'_>,
    output: &mut (dyn Write + Send),
) -> Result<(), RunError> {
    let line = line.with_environment(environment);
    let namespace = line.network_namespace.clone().filter(|path| !path.is_empty());
    let is_cni = line.cni_mode.unwrap_or_default() && !line.dry_run.unwrap_or_default();
    // Facts are of the namespace as well, so all of it happens there.
    in_namespace(namespace.as_deref().map(Path::new), is_cni, || {
        let needs_nameservers =
            line.redirect_dns.unwrap_or_default() && !line.capture_all_dns.unwrap_or_default();
        let user = line.envoy_user.as_deref().unwrap_or("istio-proxy");
        let settings = line.settle(&HostFacts::read(user, needs_nameservers)?)?;
        settings.run(output)
    })?
}

impl Settings {
    /// Applies and validates in the current network namespace.
    pub fn run(&self, output: &mut (dyn Write + Send)) -> Result<(), RunError> {
        if !self.skip_rule_apply {
            if self.dry_run {
                self.record(output)?;
            } else {
                let outcome = self.apply()?;
                tracing::info!("rules: {outcome:?}");
            }
        }
        if self.run_validation {
            self.probe.run().map_err(RunError::Validation)?;
        }
        Ok(())
    }

    /// Applies rules and the routes they rely on.
    pub fn apply(&self) -> Result<Outcome, ApplyError> {
        let lock_file = self.options.network_namespace.clone().filter(|_| self.options.cni_mode);
        let mut system =
            System::default().with_directory(self.options.tools.clone()).with_lock_file(lock_file);
        let outcome = if self.native_nftables {
            apply_nftables(&mut system, &nftables::sidecar(&self.capture), &self.options)?
        } else {
            match self.apply_to_fresh(&mut system) {
                Some(outcome) => outcome?,
                None => {
                    let tools = Tools::detect(&mut system, self.options.variant, self.capture.ipv6)?;
                    self.apply_iptables(&mut system, &tools)?
                }
            }
        };
        let routes = sidecar_routes(&self.capture);
        if self.options.cleanup_only {
            remove_routes(&routes)?;
        } else {
            add_routes(&routes)?;
        }
        Ok(outcome)
    }

    /// Applies the iptables program to the namespace of a pod that starts, in as few processes as possible: the pod waits.
    /// `None` if that cannot be, and nothing was changed.
    fn apply_to_fresh(&self, system: &mut System) -> Option<Result<Outcome, ApplyError>> {
        if !self.options.cni_mode
            || self.options.cleanup_only
            || self.options.variant == VariantChoice::Legacy
        {
            return None;
        }
        let tools = Tools::for_new_namespace(self.capture.ipv6)?;
        let (program, superseded) = (iptables::sidecar(&self.capture), iptables::superseded(&self.capture));
        match apply_iptables(system, &tools, &program, &superseded, &self.options) {
            Err(ApplyError::Command(error)) => {
                tracing::debug!("looking for another iptables: {error}");
                None
            }
            result => Some(result),
        }
    }

    /// Applies the iptables program with these programs.
    pub fn apply_iptables(&self, runner: &mut dyn Runner, tools: &Tools) -> Result<Outcome, ApplyError> {
        let program = iptables::sidecar(&self.capture);
        let superseded = iptables::superseded(&self.capture);
        let result = apply_iptables(runner, tools, &program, &superseded, &self.options);
        log_final_state(runner, tools, &program);
        result
    }

    fn record(&self, output: &mut (dyn Write + Send)) -> Result<(), RunError> {
        let mut recorder = Recorder::default();
        if self.native_nftables {
            apply_nftables(&mut recorder, &nftables::sidecar(&self.capture), &self.options)?;
        } else {
            self.apply_iptables(&mut recorder, &Tools::plain())?;
        }
        for step in sidecar_routes(&self.capture).iter().filter(|_| !self.options.cleanup_only) {
            recorder.note(step);
        }
        let text: String = recorder.lines().iter().map(|line| format!("{line}\n")).collect();
        let failed = |target: String| move |source| RunError::Output { target, source };
        output.write_all(text.as_bytes()).map_err(failed("standard output".to_owned()))?;
        if let Some(file) = &self.dry_run_file {
            std::fs::write(file, &text).map_err(failed(file.display().to_string()))?;
        }
        Ok(())
    }
}
