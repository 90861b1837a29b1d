//! The catalogue of messages: Istio's names, codes, levels and texts.
//!
//! Scripts and suppressions refer to codes, and dashboards show the texts, so both are Istio's. In a template `%s`, `%v` and
//! `%d` stand for a parameter and `%q` for a quoted one.

use crate::message::Level::{Error, Info, Warning};
use crate::message::MessageType;

macro_rules! messages {
    ($($constant:ident = $name:literal, $code:literal, $level:ident, $template:literal;)+) => {
        $(
            #[doc = concat!("`", $code, "`: ", $template)]
            pub static $constant: MessageType =
                MessageType { name: $name, code: $code, level: $level, template: $template };
        )+

        /// Every message, in the order of the catalogue.
        pub static ALL: &[&MessageType] = &[$(&$constant),+];
    };
}

messages! {
    INTERNAL_ERROR = "InternalError", "IST0001", Error,
        "Internal error: %v";
    DEPRECATED = "Deprecated", "IST0002", Warning,
        "Deprecated: %s";
    REFERENCED_RESOURCE_NOT_FOUND = "ReferencedResourceNotFound", "IST0101", Error,
        "Referenced %s not found: %q";
    NAMESPACE_NOT_INJECTED = "NamespaceNotInjected", "IST0102", Info,
        "The namespace is not enabled for Istio injection. Run 'kubectl label namespace %s istio-injection=enabled' to enable it, or 'kubectl label namespace %s istio-injection=disabled' to explicitly mark it as not needing injection.";
    POD_MISSING_PROXY = "PodMissingProxy", "IST0103", Warning,
        "The pod %s is missing the Istio proxy. This can often be resolved by restarting or redeploying the workload.";
    SCHEMA_VALIDATION_ERROR = "SchemaValidationError", "IST0106", Error,
        "Schema validation error: %v";
    MISPLACED_ANNOTATION = "MisplacedAnnotation", "IST0107", Warning,
        "Misplaced annotation: %s can only be applied to %s";
    UNKNOWN_ANNOTATION = "UnknownAnnotation", "IST0108", Warning,
        "Unknown annotation: %s";
    CONFLICTING_MESH_GATEWAY_VIRTUAL_SERVICE_HOSTS = "ConflictingMeshGatewayVirtualServiceHosts", "IST0109", Error,
        "The VirtualServices %s associated with mesh gateway define the same host %s which can lead to undefined behavior. This can be fixed by merging the conflicting VirtualServices into a single resource.";
    CONFLICTING_SIDECAR_WORKLOAD_SELECTORS = "ConflictingSidecarWorkloadSelectors", "IST0110", Error,
        "The Sidecars %v in namespace %q select the same workload pod %q, which can lead to undefined behavior.";
    MULTIPLE_SIDECARS_WITHOUT_WORKLOAD_SELECTORS = "MultipleSidecarsWithoutWorkloadSelectors", "IST0111", Error,
        "The Sidecars %v in namespace %q have no workload selector, which can lead to undefined behavior.";
    VIRTUAL_SERVICE_DESTINATION_PORT_SELECTOR_REQUIRED = "VirtualServiceDestinationPortSelectorRequired", "IST0112", Error,
        "This VirtualService routes to a service %q that exposes multiple ports %v. Specifying a port in the destination is required to disambiguate.";
    DEPLOYMENT_ASSOCIATED_TO_MULTIPLE_SERVICES = "DeploymentAssociatedToMultipleServices", "IST0116", Warning,
        "This deployment %s is associated with multiple services using port %d but different protocols: %v";
    PORT_NAME_IS_NOT_UNDER_NAMING_CONVENTION = "PortNameIsNotUnderNamingConvention", "IST0118", Info,
        "Port name %s (port: %d, targetPort: %s) doesn't follow the naming convention of Istio port.";
    NAMESPACE_MULTIPLE_INJECTION_LABELS = "NamespaceMultipleInjectionLabels", "IST0123", Warning,
        "The namespace has more than one type of injection labels %v, which may lead to undefined behavior. Make sure only one injection label exists.";
    INVALID_ANNOTATION = "InvalidAnnotation", "IST0125", Warning,
        "Invalid annotation %s: %s";
    UNKNOWN_MESH_NETWORKS_SERVICE_REGISTRY = "UnknownMeshNetworksServiceRegistry", "IST0126", Error,
        "Unknown service registry %s in network %s";
    NO_MATCHING_WORKLOADS_FOUND = "NoMatchingWorkloadsFound", "IST0127", Warning,
        "No matching workloads for this resource with the following labels: %s";
    NO_SERVER_CERTIFICATE_VERIFICATION_DESTINATION_LEVEL = "NoServerCertificateVerificationDestinationLevel", "IST0128", Warning,
        "DestinationRule %s in namespace %s has TLS mode set to %s but no caCertificates are set to validate server identity for host: %s";
    NO_SERVER_CERTIFICATE_VERIFICATION_PORT_LEVEL = "NoServerCertificateVerificationPortLevel", "IST0129", Warning,
        "DestinationRule %s in namespace %s has TLS mode set to %s but no caCertificates are set to validate server identity for host: %s at port %s";
    VIRTUAL_SERVICE_UNREACHABLE_RULE = "VirtualServiceUnreachableRule", "IST0130", Warning,
        "VirtualService rule %v not used (%s).";
    VIRTUAL_SERVICE_INEFFECTIVE_MATCH = "VirtualServiceIneffectiveMatch", "IST0131", Info,
        "VirtualService rule %v match %v is not used (duplicate/overlapping match in rule %v).";
    VIRTUAL_SERVICE_HOST_NOT_FOUND_IN_GATEWAY = "VirtualServiceHostNotFoundInGateway", "IST0132", Warning,
        "one or more host %v defined in VirtualService %s not found in Gateway %s.";
    SCHEMA_WARNING = "SchemaWarning", "IST0133", Warning,
        "Schema validation warning: %v";
    SERVICE_ENTRY_ADDRESSES_REQUIRED = "ServiceEntryAddressesRequired", "IST0134", Warning,
        "ServiceEntry addresses are required for this protocol.";
    DEPRECATED_ANNOTATION = "DeprecatedAnnotation", "IST0135", Info,
        "Annotation %q has been deprecated%s and may not work in future Istio versions.";
    ALPHA_ANNOTATION = "AlphaAnnotation", "IST0136", Info,
        "Annotation %q is part of an alpha-phase feature and may be incompletely supported.";
    DEPLOYMENT_CONFLICTING_PORTS = "DeploymentConflictingPorts", "IST0137", Warning,
        "This deployment %s is associated with multiple services %v using targetPort %q but different ports: %v.";
    GATEWAY_DUPLICATE_CERTIFICATE = "GatewayDuplicateCertificate", "IST0138", Warning,
        "Duplicate certificate in multiple gateways %v may cause 404s if clients re-use HTTP2 connections.";
    INVALID_WEBHOOK = "InvalidWebhook", "IST0139", Error,
        "%v";
    INGRESS_ROUTE_RULES_NOT_AFFECTED = "IngressRouteRulesNotAffected", "IST0140", Warning,
        "Subset in virtual service %s has no effect on ingress gateway %s requests";
    INSUFFICIENT_PERMISSIONS = "InsufficientPermissions", "IST0141", Error,
        "Missing required permission to create resource %v (%v)";
    UNSUPPORTED_KUBERNETES_VERSION = "UnsupportedKubernetesVersion", "IST0142", Error,
        "The Kubernetes Version %q is lower than the minimum version: %v";
    LOCALHOST_LISTENER = "LocalhostListener", "IST0143", Error,
        "Port %v is exposed in a Service but listens on localhost. It will not be exposed to other pods.";
    INVALID_APPLICATION_UID = "InvalidApplicationUID", "IST0144", Warning,
        "User ID (UID) 1337 is reserved for the sidecar proxy.";
    CONFLICTING_GATEWAYS = "ConflictingGateways", "IST0145", Error,
        "Conflict with gateways %s (workload selector %s, port %s, hosts %v).";
    IMAGE_AUTO_WITHOUT_INJECTION_WARNING = "ImageAutoWithoutInjectionWarning", "IST0146", Warning,
        "%s %s contains `image: auto` but does not match any Istio injection webhook selectors.";
    IMAGE_AUTO_WITHOUT_INJECTION_ERROR = "ImageAutoWithoutInjectionError", "IST0147", Error,
        "%s %s contains `image: auto` but does not match any Istio injection webhook selectors.";
    NAMESPACE_INJECTION_ENABLED_BY_DEFAULT = "NamespaceInjectionEnabledByDefault", "IST0148", Info,
        "is enabled for Istio injection, as Istio is installed with enableNamespacesByDefault as true.";
    JWT_CLAIM_BASED_ROUTING_WITHOUT_REQUEST_AUTH_N = "JwtClaimBasedRoutingWithoutRequestAuthN", "IST0149", Error,
        "The virtual service uses the JWT claim based routing (key: %s) but found no request authentication for the gateway (%s) pod (%s). The request authentication must first be applied for the gateway pods to validate the JWT token and make the claims available for routing.";
    EXTERNAL_NAME_SERVICE_TYPE_INVALID_PORT_NAME = "ExternalNameServiceTypeInvalidPortName", "IST0150", Warning,
        "Port name for ExternalName service is invalid. Proxy may prevent tcp named ports and unmatched traffic for ports serving TCP protocol from being forwarded correctly";
    ENVOY_FILTER_USES_RELATIVE_OPERATION = "EnvoyFilterUsesRelativeOperation", "IST0151", Warning,
        "This EnvoyFilter does not have a priority and has a relative patch operation set which can cause the EnvoyFilter not to be applied. Using the INSERT_FIRST of ADD option or setting the priority may help in ensuring the EnvoyFilter is applied correctly.";
    ENVOY_FILTER_USES_REPLACE_OPERATION_INCORRECTLY = "EnvoyFilterUsesReplaceOperationIncorrectly", "IST0152", Error,
        "The REPLACE operation is only valid for HTTP_FILTER and NETWORK_FILTER.";
    ENVOY_FILTER_USES_ADD_OPERATION_INCORRECTLY = "EnvoyFilterUsesAddOperationIncorrectly", "IST0153", Error,
        "The ADD operation will be ignored when applyTo is set to ROUTE_CONFIGURATION, or HTTP_ROUTE.";
    ENVOY_FILTER_USES_REMOVE_OPERATION_INCORRECTLY = "EnvoyFilterUsesRemoveOperationIncorrectly", "IST0154", Error,
        "The REMOVE operation will be ignored when applyTo is set to ROUTE_CONFIGURATION, or HTTP_ROUTE.";
    ENVOY_FILTER_USES_RELATIVE_OPERATION_WITH_PROXY_VERSION = "EnvoyFilterUsesRelativeOperationWithProxyVersion", "IST0155", Warning,
        "This EnvoyFilter does not have a priority and has a relative patch operation (NSTERT_BEFORE/AFTER, REPLACE, MERGE, DELETE) and proxyVersion set which can cause the EnvoyFilter not to be applied during an upgrade. Using the INSERT_FIRST or ADD option or setting the priority may help in ensuring the EnvoyFilter is applied correctly.";
    UNSUPPORTED_GATEWAY_API_VERSION = "UnsupportedGatewayAPIVersion", "IST0156", Error,
        "The Gateway API CRD version %v is lower than the minimum version: %v";
    FUTURE_UNSUPPORTED_GATEWAY_API_VERSION = "FutureUnsupportedGatewayAPIVersion", "IST0172", Warning,
        "The Gateway API CRD version %v is lower than the minimum version: %v";
    INVALID_TELEMETRY_PROVIDER = "InvalidTelemetryProvider", "IST0157", Warning,
        "The Telemetry %v in namespace %q with empty providers will be ignored.";
    PODS_ISTIO_PROXY_IMAGE_MISMATCH_IN_NAMESPACE = "PodsIstioProxyImageMismatchInNamespace", "IST0158", Warning,
        "The Istio proxy images of the pods running in the namespace do not match the image defined in the injection configuration (pod names: %v). This often happens after upgrading the Istio control-plane and can be fixed by redeploying the pods.";
    CONFLICTING_TELEMETRY_WORKLOAD_SELECTORS = "ConflictingTelemetryWorkloadSelectors", "IST0159", Error,
        "The Telemetries %v in namespace %q select the same workload pod %q, which can lead to undefined behavior.";
    MULTIPLE_TELEMETRIES_WITHOUT_WORKLOAD_SELECTORS = "MultipleTelemetriesWithoutWorkloadSelectors", "IST0160", Error,
        "The Telemetries %v in namespace %q have no workload selector, which can lead to undefined behavior.";
    INVALID_GATEWAY_CREDENTIAL = "InvalidGatewayCredential", "IST0161", Error,
        "The credential referenced by the Gateway %s in namespace %s is invalid, which can cause the traffic not to work as expected.";
    GATEWAY_PORT_NOT_DEFINED_ON_SERVICE = "GatewayPortNotDefinedOnService", "IST0162", Warning,
        "The gateway is listening on a target port (port %d) that is not defined in the Service associated with its workload instances (Pod selector %s). If you need to access the gateway port through the gateway Service, it will not be available.";
    INVALID_EXTERNAL_CONTROL_PLANE_CONFIG = "InvalidExternalControlPlaneConfig", "IST0163", Warning,
        "The hostname (%s) that was provided for the webhook (%s) to reach the ingress gateway on the external control plane cluster %s. Traffic may not flow properly.";
    EXTERNAL_CONTROL_PLANE_ADDRESS_IS_NOT_A_HOSTNAME = "ExternalControlPlaneAddressIsNotAHostname", "IST0164", Info,
        "The address (%s) that was provided for the webhook (%s) to reach the ingress gateway on the external control plane cluster is an IP address. This is not recommended for a production environment.";
    REFERENCED_INTERNAL_GATEWAY = "ReferencedInternalGateway", "IST0165", Warning,
        "Gateway reference in VirtualService %s is to an implementation-generated internal Gateway: %s.";
    INEFFECTIVE_SELECTOR = "IneffectiveSelector", "IST0166", Warning,
        "Ineffective selector on Kubernetes Gateway %s. Use the TargetRef field instead.";
    INEFFECTIVE_POLICY = "IneffectivePolicy", "IST0167", Warning,
        "The policy has no impact: %s.";
    UNKNOWN_UPGRADE_COMPATIBILITY = "UnknownUpgradeCompatibility", "IST0168", Warning,
        "The configuration %q changed in release %s, but compatibility cannot be automatically detected: %s. Or, install with `--set compatibilityVersion=%s` to retain the old default.";
    UPDATE_INCOMPATIBILITY = "UpdateIncompatibility", "IST0169", Warning,
        "The configuration %q changed in release %s: %s. Or, install with `--set compatibilityVersion=%s` to retain the old default.";
    MULTI_CLUSTER_INCONSISTENT_SERVICE = "MultiClusterInconsistentService", "IST0170", Warning,
        "The service %v in namespace %q is inconsistent across clusters %q, which can lead to undefined behaviors. The inconsistent behaviors are: %v.";
    NEGATIVE_CONDITION_STATUS = "NegativeConditionStatus", "IST0171", Warning,
        "A condition with a negative status is present: type=%s, reason=%s, message=%s.";
    DESTINATION_RULE_SUBSET_NOT_SELECT_PODS = "DestinationRuleSubsetNotSelectPods", "IST0173", Error,
        "The Subset %s defined in the DestinationRule does not select any pods. Which may lead to 503 UH (NoHealthyUpstream).";
    UNKNOWN_DESTINATION_RULE_HOST = "UnknownDestinationRuleHost", "IST0174", Warning,
        "The host %s defined in the DestinationRule does not match any services in the mesh.";
    JWKS_URI_FETCH_UNRESTRICTED = "JwksUriFetchUnrestricted", "IST0175", Warning,
        "BLOCKED_CIDRS_IN_JWKS_URIS is not configured but %d RequestAuthentication resource(s) exist (%s). Consider configuring it to restrict JWKS URI fetches to trusted networks.";
    GATEWAY_API_CRD_VERSION_BELOW_MINIMUM = "GatewayAPICRDVersionBelowMinimum", "IST0176", Warning,
        "Gateway API CRD %q is at version %q but Istio requires at least %q; resources of this kind will not be processed. Upgrade the Gateway API CRDs to satisfy the minimum version.";
    CONFLICTING_SERVICE_ENTRY_PROTOCOL = "ConflictingServiceEntryProtocol", "IST0177", Warning,
        "Multiple ServiceEntries (%s) define the same host %q and port %d with conflicting protocols (%s).";
}
