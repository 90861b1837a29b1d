//! Analyzers: which there are, what they read, and running a set of them.

use canopus_api::Kind;

use crate::analyzers::*;
use crate::findings::Findings;
use crate::message::Message;
use crate::suppression::{self, Suppression};
use crate::world::World;

/// What an analyzer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Objects of a kind.
    Kind(Kind),
    /// The mesh configuration.
    MeshConfig,
    /// The networks of the mesh.
    MeshNetworks,
}

/// A check of the world.
#[derive(Clone, Copy, Debug)]
pub struct Analyzer {
    /// The name for `--analyzer`. Empty for schema validation, whose name has the kind in it.
    name: &'static str,
    about: &'static str,
    inputs: &'static [Input],
    run: Run,
}

#[derive(Clone, Copy, Debug)]
enum Run {
    Function(fn(&World, &mut Findings)),
    Schema(Kind),
    MeshConfigSchema,
    MeshNetworksSchema,
}

impl Analyzer {
    const fn new(
        name: &'static str,
        about: &'static str,
        inputs: &'static [Input],
        run: fn(&World, &mut Findings),
    ) -> Self {
        Self { name, about, inputs, run: Run::Function(run) }
    }

    const fn schema(run: Run) -> Self {
        Self { name: "", about: "", inputs: &[], run }
    }

    fn schema_kind(&self) -> Option<&'static str> {
        match self.run {
            Run::Function(_) => None,
            Run::Schema(kind) => Some(kind.info().kind),
            Run::MeshConfigSchema => Some("MeshConfig"),
            Run::MeshNetworksSchema => Some("MeshNetworks"),
        }
    }

    /// The name.
    pub fn name(&self) -> String {
        match self.schema_kind() {
            Some(kind) => format!("schema.ValidationAnalyzer.{kind}"),
            None => self.name.to_owned(),
        }
    }

    /// What it checks.
    pub fn about(&self) -> String {
        match self.schema_kind() {
            Some(kind) => format!("Runs schema validation as an analyzer on '{kind}' resources"),
            None => self.about.to_owned(),
        }
    }

    /// Whether all it reads is of kinds that count.
    pub fn can_run(&self, counts: impl Fn(Kind) -> bool) -> bool {
        let kinds = self.inputs.iter().filter_map(|input| match input {
            Input::Kind(kind) => Some(*kind),
            Input::MeshConfig | Input::MeshNetworks => None,
        });
        let own = match self.run {
            Run::Schema(kind) => Some(kind),
            _ => None,
        };
        kinds.chain(own).all(counts)
    }

    fn run(&self, world: &World, findings: &mut Findings) {
        match self.run {
            Run::Function(run) => run(world, findings),
            Run::Schema(kind) => schema::analyze(kind, world, findings),
            Run::MeshConfigSchema => schema::mesh_config(world, findings),
            Run::MeshNetworksSchema => schema::mesh_networks(world, findings),
        }
    }
}

macro_rules! inputs {
    ($($kind:ident)*) => { &[$(inputs!(@ $kind)),*] };
    (@ MeshConfig) => { Input::MeshConfig };
    (@ MeshNetworks) => { Input::MeshNetworks };
    (@ $kind:ident) => { Input::Kind(Kind::$kind) };
}

/// Every analyzer, in Istio's order.
pub static ALL: &[Analyzer] = &[
    Analyzer::new(
        "annotations.K8sAnalyzer",
        "Checks for misplaced and invalid Istio annotations in Kubernetes resources",
        inputs!(Namespace Service Pod Deployment),
        annotations::analyze,
    ),
    Analyzer::new(
        "authn.BlockedCIDRsAnalyzer",
        "Checks that BLOCKED_CIDRS_IN_JWKS_URIS is configured on istiod when RequestAuthentication resources exist",
        inputs!(RequestAuthentication Deployment),
        jwks::analyze,
    ),
    Analyzer::new(
        "auth.AuthorizationPoliciesAnalyzer",
        "Checks the validity of authorization policies",
        inputs!(MeshConfig AuthorizationPolicy Namespace Pod),
        authorization_policy::analyze,
    ),
    Analyzer::new(
        "conditions.ConditionAnalyzer",
        "Checks for negative status conditions on resources",
        inputs!(Service ServiceEntry WorkloadEntry AuthorizationPolicy KubernetesGateway HttpRoute GrpcRoute),
        conditions::analyze,
    ),
    Analyzer::new(
        "deployment.MultiServiceAnalyzer",
        "Checks association between services and pods",
        inputs!(Service Deployment Namespace),
        deployment::services,
    ),
    Analyzer::new(
        "applicationUID.Analyzer",
        "Checks invalid application UID",
        inputs!(Pod Deployment),
        deployment::application_user,
    ),
    Analyzer::new(
        "destinationrule.CaCertificateAnalyzer",
        "Checks if caCertificates is set when TLS mode is SIMPLE/MUTUAL",
        inputs!(DestinationRule),
        destination_rule::certificates,
    ),
    Analyzer::new(
        "destinationrule.SubsetSelectPodAnalyzer",
        "Checks if pods are selected by subsets in destination rules.",
        inputs!(DestinationRule Pod Service ServiceEntry Node),
        destination_rule::subsets,
    ),
    Analyzer::new(
        "deprecation.DeprecationAnalyzer",
        "Checks for deprecated Istio types and fields",
        inputs!(VirtualService Sidecar CustomResourceDefinition),
        deprecation::analyze,
    ),
    Analyzer::new(
        "envoyfilter.EnvoyPatchAnalyzer",
        "Checks an envoyFilters ",
        inputs!(EnvoyFilter),
        envoy_filter::analyze,
    ),
    Analyzer::new(
        "externalcontrolplane.ExternalControlPlaneAnalyzer",
        "Checks that the remote IstioOperator resources reference an external control plane",
        inputs!(ValidatingWebhookConfiguration MutatingWebhookConfiguration),
        webhook::external_control_plane,
    ),
    Analyzer::new(
        "gateway.IngressGatewayPortAnalyzer",
        "Checks a gateway's ports against the gateway's Kubernetes service ports",
        inputs!(Gateway Pod Service),
        gateway::ports,
    ),
    Analyzer::new(
        "gateway.CertificateAnalyzer",
        "Checks a gateway certificate",
        inputs!(Gateway),
        gateway::duplicate_certificates,
    ),
    Analyzer::new(
        "gateway.SecretAnalyzer",
        "Checks a gateway's referenced secrets for correctness",
        inputs!(Gateway Pod Secret),
        gateway::secrets,
    ),
    Analyzer::new(
        "gateway.ConflictingGatewayAnalyzer",
        "Checks a gateway's selector, port number and hosts",
        inputs!(Gateway Pod),
        gateway::conflicts,
    ),
    Analyzer::new(
        "injection.Analyzer",
        "Checks conditions related to Istio sidecar injection",
        inputs!(Namespace Pod ConfigMap),
        injection::analyze,
    ),
    Analyzer::new(
        "injection.ImageAnalyzer",
        "Checks the image of auto-injection configured with the running proxies on pods",
        inputs!(Namespace Pod ConfigMap MeshConfig ProxyConfig),
        injection::images,
    ),
    Analyzer::new(
        "injection.ImageAutoAnalyzer",
        "Makes sure that Pods and Deployments with `image: auto` are going to be injected",
        inputs!(Namespace Pod Deployment MutatingWebhookConfiguration),
        injection::automatic_images,
    ),
    Analyzer::new(
        "k8sgateway.SelectorAnalyzer",
        "Check that selectors are effective for Kubernetes gateway",
        inputs!(AuthorizationPolicy RequestAuthentication Telemetry WasmPlugin Pod),
        gateway_api::selectors,
    ),
    Analyzer::new(
        "k8sgateway.CRDVersionAnalyzer",
        "Checks Gateway API CRDs are at the minimum version required by this Istio version",
        inputs!(CustomResourceDefinition),
        gateway_api::definition_versions,
    ),
    Analyzer::new(
        "meshnetworks.MeshNetworksAnalyzer",
        "Check the validity of MeshNetworks in the cluster",
        inputs!(MeshNetworks Secret),
        multicluster::networks,
    ),
    Analyzer::new(
        "services.MultiClusterServiceAnalyzer",
        "Check the validity of services in the multi-cluster environment",
        inputs!(Service),
        multicluster::services,
    ),
    Analyzer::new(
        "service.PortNameAnalyzer",
        "Checks the port names associated with each service",
        inputs!(Service),
        service::port_names,
    ),
    Analyzer::new(
        "sidecar.SelectorAnalyzer",
        "Validates that sidecars that define a workload selector match at least one pod, and that there aren't multiple \
         sidecar resources that select overlapping pods",
        inputs!(Sidecar Pod Namespace),
        sidecar::analyze,
    ),
    Analyzer::new(
        "virtualservice.ConflictingMeshGatewayHostsAnalyzer",
        "Checks if multiple virtual services associated with the mesh gateway have conflicting hosts",
        inputs!(VirtualService),
        virtual_service::conflicting_hosts,
    ),
    Analyzer::new(
        "virtualservice.DestinationHostAnalyzer",
        "Checks the destination hosts associated with each virtual service",
        inputs!(ServiceEntry VirtualService Service),
        destination::hosts,
    ),
    Analyzer::new(
        "virtualservice.DestinationRuleAnalyzer",
        "Checks the destination rules associated with each virtual service",
        inputs!(VirtualService DestinationRule),
        destination::subsets,
    ),
    Analyzer::new(
        "virtualservice.GatewayAnalyzer",
        "Checks the gateways associated with each virtual service",
        inputs!(Gateway KubernetesGateway VirtualService),
        virtual_service::gateways,
    ),
    Analyzer::new(
        "virtualservice.JWTClaimRouteAnalyzer",
        "Checks the VirtualService using JWT claim based routing has corresponding RequestAuthentication",
        inputs!(VirtualService RequestAuthentication Gateway Pod),
        virtual_service::jwt_claims,
    ),
    Analyzer::new(
        "serviceentry.Analyzer",
        "Checks the validity of ServiceEntry",
        inputs!(ServiceEntry MeshConfig),
        service_entry::addresses,
    ),
    Analyzer::new(
        "serviceentry.ConflictingServiceEntryProtocolAnalyzer",
        "Checks if multiple ServiceEntries define the same host and port with different protocols",
        inputs!(ServiceEntry),
        service_entry::protocols,
    ),
    Analyzer::new(
        "webhook.Analyzer",
        "Checks the validity of Istio webhooks",
        inputs!(MutatingWebhookConfiguration Service),
        webhook::analyze,
    ),
    Analyzer::new(
        "telemetry.ProviderAnalyzer",
        "Validates that providers in telemetry resource is valid",
        inputs!(Telemetry MeshConfig),
        telemetry::providers,
    ),
    Analyzer::new(
        "telemetry.SelectorAnalyzer",
        "Validates that telemetries that define a selector match at least one pod, and that there aren't multiple \
         telemetry resources that select overlapping pods",
        inputs!(Telemetry Pod),
        telemetry::selectors,
    ),
    Analyzer::new(
        "telemetry.DefaultSelectorAnalyzer",
        "Validates that there aren't multiple telemetry resources that have no selector",
        inputs!(Telemetry),
        telemetry::default_selectors,
    ),
    Analyzer::new(
        "telemetry.LightstepAnalyzer",
        "Validates that lightstep provider is still used",
        inputs!(Telemetry MeshConfig),
        telemetry::lightstep,
    ),
    Analyzer::schema(Run::Schema(Kind::AuthorizationPolicy)),
    Analyzer::schema(Run::Schema(Kind::DestinationRule)),
    Analyzer::schema(Run::Schema(Kind::EnvoyFilter)),
    Analyzer::schema(Run::Schema(Kind::Gateway)),
    Analyzer::schema(Run::Schema(Kind::PeerAuthentication)),
    Analyzer::schema(Run::Schema(Kind::ProxyConfig)),
    Analyzer::schema(Run::Schema(Kind::RequestAuthentication)),
    Analyzer::schema(Run::Schema(Kind::ServiceEntry)),
    Analyzer::schema(Run::Schema(Kind::Sidecar)),
    Analyzer::schema(Run::Schema(Kind::Telemetry)),
    Analyzer::schema(Run::Schema(Kind::TrafficExtension)),
    Analyzer::schema(Run::Schema(Kind::VirtualService)),
    Analyzer::schema(Run::Schema(Kind::WasmPlugin)),
    Analyzer::schema(Run::Schema(Kind::WorkloadEntry)),
    Analyzer::schema(Run::Schema(Kind::WorkloadGroup)),
    Analyzer::schema(Run::MeshNetworksSchema),
    Analyzer::schema(Run::MeshConfigSchema),
];

/// Whether some analyzer reads objects of a kind.
pub fn reads(kind: Kind) -> bool {
    ALL.iter().any(|analyzer| analyzer.inputs.contains(&Input::Kind(kind)))
}

/// Which analyzers run and what they may report.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Names of analyzers; all run if none of them is known.
    pub analyzers: Vec<String>,
    /// The namespace whose objects are reported, besides those without one; all if empty.
    pub namespace: String,
    /// What is not reported.
    pub suppressions: Vec<Suppression>,
}

/// The result of an analysis.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The messages, sorted and without duplicates.
    pub messages: Vec<Message>,
    /// Names of the analyzers that were chosen.
    pub chosen: Vec<String>,
    /// Names of those among them that could not run because kinds they read do not count.
    pub skipped: Vec<String>,
}

/// Runs the selected analyzers. `counts` says of which kinds the world has all objects; analyzers that read others are
/// skipped, because they would report what is only not known.
pub fn analyze(world: &World, selection: &Selection, counts: impl Fn(Kind) -> bool) -> Outcome {
    let is_named = |analyzer: &&Analyzer| selection.analyzers.contains(&analyzer.name());
    let mut chosen: Vec<&Analyzer> = ALL.iter().filter(is_named).collect();
    if chosen.is_empty() {
        chosen = ALL.iter().collect();
    }
    let mut outcome = Outcome::default();
    let mut findings = Findings::default();
    for analyzer in chosen {
        outcome.chosen.push(analyzer.name());
        if analyzer.can_run(&counts) {
            analyzer.run(world, &mut findings);
        } else {
            outcome.skipped.push(analyzer.name());
        }
    }
    outcome.messages = findings.messages;
    outcome.messages.retain(|message| selection.reports(message));
    outcome.messages.sort_by(Message::print_order);
    outcome.messages.dedup();
    outcome
}

impl Selection {
    /// Whether a message is reported.
    pub fn reports(&self, message: &Message) -> bool {
        let namespace = message.origin.as_ref().map(|origin| origin.reported_namespace()).unwrap_or_default();
        let is_elsewhere = !self.namespace.is_empty() && !namespace.is_empty() && namespace != self.namespace;
        !is_elsewhere
            && !suppression::is_suppressed_by_object(message)
            && !self.suppressions.iter().any(|suppression| suppression.covers(message))
    }
}
