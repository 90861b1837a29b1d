//! What is in the kernel after rules are applied, applied again, replaced and removed.

use anyhow::{Result, ensure};
use canopus_capture::CommandLine;
use canopus_capture::ambient::{AmbientConfig, PodOverrides};
use canopus_capture::apply::{
    ApplyError, Outcome, System, Tools, VariantChoice, apply_iptables, apply_nftables,
};
use canopus_capture::iptables::{self, RuleProgram};
use canopus_capture::nftables::{self, Listing};

use crate::lab::{Backend, Lab, sh, tools};

/// Settings that use every kind of rule.
fn everything(line: &mut CommandLine) {
    let some = |text: &str| Some(text.to_owned());
    line.istio_inbound_interception_mode = some("TPROXY");
    line.istio_local_exclude_ports = some("15090,9000:9010");
    line.istio_service_exclude_cidr = some("10.1.0.0/16,fd01::/16");
    line.istio_outbound_ports = some("8443");
    line.istio_local_outbound_ports_exclude = some("3306");
    line.istio_exclude_interfaces = some("net1");
    line.kube_virt_interfaces = some("veth+");
    line.owner_groups_exclude = some("202");
    line.redirect_dns = Some(true);
    line.capture_all_dns = Some(true);
    line.drop_invalid = Some(true);
    line.dual_stack = Some(true);
}

fn nothing(_: &mut CommandLine) {}

pub(crate) fn left_alone(backend: Backend) -> Result<()> {
    for change in [nothing as fn(&mut CommandLine), everything] {
        let lab = Lab::new()?;
        let settings = lab.settings(backend, change)?;
        ensure!(lab.apply(&settings)?? == Outcome::Applied, "applied");
        let first = lab.listing(backend)?;
        check_counts(backend, &settings.capture, &first)?;
        let again = lab.apply(&settings)??;
        // A transaction of nftables replaces its tables by the same contents.
        ensure!(
            again == if backend == Backend::Nftables { Outcome::Applied } else { Outcome::Unchanged },
            "{again:?}"
        );
        let second = lab.listing(backend)?;
        ensure!(second == first, "other rules after the second run:\n{first}\n{second}");
    }
    Ok(())
}

/// Every rule of the program is in the kernel, in as many chains.
fn check_counts(backend: Backend, config: &canopus_capture::CaptureConfig, listing: &str) -> Result<()> {
    if backend == Backend::Nftables {
        let transaction = nftables::sidecar(config);
        let wanted: usize = Listing::from_transaction(&transaction).counts().map(|(_, _, rules)| rules).sum();
        let found = listing.lines().filter(|line| line.contains("counter ")).count();
        ensure!(found == wanted, "{found} rules in the kernel, {wanted} in the program:\n{listing}");
    } else {
        let program = iptables::sidecar(config);
        let wanted = program.v4.rules().len() + program.v6.map_or(0, |rules| rules.rules().len());
        let found = listing.lines().filter(|line| line.starts_with("-A")).count();
        ensure!(found == wanted, "{found} rules in the kernel, {wanted} in the program:\n{listing}");
    }
    Ok(())
}

/// Nothing of capture is in a listing.
fn check_empty(listing: &str) -> Result<()> {
    let is_trace = |line: &&str| {
        line.starts_with("-A")
            || ["ISTIO", "istio-", "::6/128", "0x539", "table 133"].iter().any(|word| line.contains(word))
    };
    match listing.lines().find(is_trace) {
        Some(line) => anyhow::bail!("left: {line}"),
        None => Ok(()),
    }
}

pub(crate) fn cleanup(backend: Backend) -> Result<()> {
    let lab = Lab::new()?;
    let mut settings = lab.settings(backend, everything)?;
    lab.apply(&settings)??;
    ensure!(check_empty(&lab.listing(backend)?).is_err(), "nothing was applied");
    settings.options.cleanup_only = true;
    ensure!(lab.apply(&settings)?? == Outcome::Removed, "removed");
    check_empty(&lab.listing(backend)?)?;
    // There is nothing to remove, which is fine.
    ensure!(lab.apply(&settings)?? == Outcome::Removed, "removed again");
    check_empty(&lab.listing(backend)?)
}

pub(crate) fn cleanup_of_others(backend: Backend) -> Result<()> {
    let lab = Lab::new()?;
    lab.apply(&lab.settings(backend, |line| {
        line.istio_inbound_interception_mode = Some("TPROXY".to_owned());
        line.redirect_dns = Some(true);
        line.capture_all_dns = Some(true);
        line.drop_invalid = Some(true);
    })?)??;
    let mut settings = lab.settings(backend, nothing)?;
    settings.options.cleanup_only = true;
    lab.apply(&settings)??;
    // Routes of other settings do no harm without rules that mark packets.
    check_empty(&rules_only(&lab.listing(backend)?))
}

pub(crate) fn replaced(backend: Backend) -> Result<()> {
    let fresh = Lab::new()?;
    let wanted = fresh.settings(backend, nothing)?;
    fresh.apply(&wanted)??;
    let expected = rules_only(&fresh.listing(backend)?);

    let lab = Lab::new()?;
    lab.apply(&lab.settings(backend, |line| {
        line.istio_inbound_interception_mode = Some("TPROXY".to_owned());
        line.drop_invalid = Some(true);
    })?)??;
    let mut settings = lab.settings(backend, nothing)?;
    if backend != Backend::Nftables {
        let before = lab.listing(backend)?;
        let error = lab.apply(&settings)?.unwrap_err();
        ensure!(matches!(error, ApplyError::Drift { .. }), "{error}");
        ensure!(error.to_string().contains("--reconcile"), "{error}");
        ensure!(lab.listing(backend)? == before, "a refused run changed rules");
    }
    settings.options.reconcile = true;
    ensure!(lab.apply(&settings)?? == Outcome::Replaced, "replaced");
    let found = rules_only(&lab.listing(backend)?);
    ensure!(found == expected, "expected:\n{expected}\nfound:\n{found}");
    Ok(())
}

/// New settings use a table before the one in which rules collide; that table must not change either.
pub(crate) fn refused_whole(backend: Backend) -> Result<()> {
    if backend == Backend::Nftables {
        return Ok(());
    }
    let lab = Lab::new()?;
    lab.apply(&lab.settings(backend, nothing)?)??;
    let before = lab.listing(backend)?;
    let error = lab.apply(&lab.settings(backend, everything)?)?.unwrap_err();
    ensure!(matches!(error, ApplyError::Drift { .. }), "{error}");
    let after = lab.listing(backend)?;
    ensure!(after == before, "before:\n{before}\nafter:\n{after}");
    Ok(())
}

/// The rules, without tables that have none and without routes.
fn rules_only(listing: &str) -> String {
    let is_rule = |line: &&str| line.starts_with("-A") || line.contains("counter ");
    listing.lines().filter(is_rule).map(|line| format!("{line}\n")).collect()
}

pub(crate) fn foreign(backend: Backend) -> Result<()> {
    let lab = Lab::new()?;
    let variant = if backend == Backend::Legacy { "legacy" } else { "nft" };
    let iptables = tools()?.join(format!("iptables-{variant}")).display().to_string();
    let exec = |words: &[&str]| sh("ip", &[&["netns", "exec", &lab.pod(), &iptables], words].concat());
    exec(&["-t", "nat", "-N", "KUBE-MARK"])?;
    exec(&["-t", "nat", "-A", "OUTPUT", "-p", "tcp", "--dport", "9999", "-j", "KUBE-MARK"])?;
    let kept = |lab: &Lab| -> Result<()> {
        let rules = exec(&["-t", "nat", "-S"])?;
        ensure!(rules.contains("-N KUBE-MARK") && rules.contains("--dport 9999 -j KUBE-MARK"), "{rules}");
        drop(lab.listing(backend)?);
        Ok(())
    };
    let mut settings = lab.settings(backend, everything)?;
    lab.apply(&settings)??;
    kept(&lab)?;
    settings.options.reconcile = true;
    lab.apply(&settings)??;
    kept(&lab)?;
    settings.options.cleanup_only = true;
    lab.apply(&settings)??;
    kept(&lab)
}

/// The rules of an ambient pod are taken by the kernel, and are there afterwards.
pub(crate) fn ambient(backend: Backend) -> Result<()> {
    let lab = Lab::new()?;
    let config = AmbientConfig { ipv6: true, redirect_dns: true, ..AmbientConfig::default() };
    let pod = PodOverrides { virtual_interfaces: vec!["veth+".parse().unwrap()], ..PodOverrides::default() };
    let options = lab.settings(backend, nothing)?.options;
    let mut system = System::default().with_directory(options.tools.clone());
    let apply = || -> Result<Outcome, ApplyError> {
        if backend == Backend::Nftables {
            return apply_nftables(&mut system, &nftables::ambient_pod(&config, &pod), &options);
        }
        let tools = Tools::detect(&mut system, options.variant, true)?;
        let program = iptables::ambient_pod(&config, &pod);
        apply_iptables(&mut system, &tools, &program, &RuleProgram::default(), &options)?;
        // Listed by the kernel in other words, the rules are still found to be the same.
        apply_iptables(&mut system, &tools, &program, &RuleProgram::default(), &options)
    };
    let outcome = Lab::inside(&lab.pod(), apply)??;
    let expected = if backend == Backend::Nftables { Outcome::Applied } else { Outcome::Unchanged };
    ensure!(outcome == expected, "{outcome:?}");
    let listing = lab.listing(backend)?;
    ensure!(listing.contains("169.254.7.127") && listing.contains("15053"), "{listing}");
    Ok(())
}

pub(crate) fn detection() -> Result<()> {
    let lab = Lab::new()?;
    let mut settings = lab.settings(Backend::Nft, nothing)?;
    settings.options.variant = VariantChoice::Detect;
    ensure!(lab.apply(&settings)?? == Outcome::Applied, "applied");
    ensure!(lab.listing(Backend::Nft)?.contains("ISTIO_OUTPUT"), "nft is preferred");
    // Looking at the legacy variant must not make it the preferred one.
    ensure!(lab.apply(&settings)?? == Outcome::Unchanged, "the second run found the rules of the first");
    ensure!(!lab.listing(Backend::Legacy)?.contains("ISTIO_OUTPUT"), "legacy was left alone");

    let legacy = Lab::new()?;
    let program = tools()?.join("iptables-legacy").display().to_string();
    sh(
        "ip",
        &[
            "netns",
            "exec",
            &legacy.pod(),
            &program,
            "-t",
            "filter",
            "-A",
            "INPUT",
            "-p",
            "255",
            "-j",
            "RETURN",
        ],
    )?;
    let mut settings = legacy.settings(Backend::Legacy, nothing)?;
    settings.options.variant = VariantChoice::Detect;
    legacy.apply(&settings)??;
    ensure!(legacy.listing(Backend::Legacy)?.contains("ISTIO_OUTPUT"), "legacy has rules, so it is used");
    Ok(())
}
