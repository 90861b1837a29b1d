//! Objects by which programs govern the cluster: accounts, leases, certificates, webhooks, definitions of kinds.

use jiff::Timestamp;

use crate::decode::slim;
use crate::macros::object;
use crate::resource::Resource;
use crate::value::{Base64, Condition, LabelSelector, time};

/// An identity of pods.
pub type ServiceAccount = Resource<ServiceAccountData>;
/// A lock that has to be renewed.
pub type Lease = Resource<LeaseSpec>;
/// A wish for a certificate.
pub type CertificateSigningRequest = Resource<CertificateSigningRequestSpec, CertificateSigningRequestStatus>;
/// Roots that are to be trusted.
pub type ClusterTrustBundle = Resource<ClusterTrustBundleSpec>;
/// Webhooks that may change objects before they are stored.
pub type MutatingWebhookConfiguration = Resource<MutatingWebhooks>;
/// Webhooks that may refuse objects before they are stored.
pub type ValidatingWebhookConfiguration = Resource<ValidatingWebhooks>;
/// A kind that the cluster learnt.
pub type CustomResourceDefinition = Resource<CustomResourceDefinitionSpec, CustomResourceDefinitionStatus>;

object! {
    /// What an account holds.
    ServiceAccountData {
        /// The secrets that hold its tokens.
        secrets: Vec<LocalReference>,
        /// The secrets by which its pods pull images.
        image_pull_secrets: Vec<LocalReference>,
    }

    /// An object of the same namespace, by name.
    LocalReference {
        /// The name.
        name: Box<str>,
    }

    /// Holder and times of a lock.
    LeaseSpec {
        /// The holder.
        holder_identity: Option<Box<str>>,
        /// For how long after the last renewal.
        lease_duration_seconds: Option<i32>,
        /// When the holder got it.
        #[serde(with = "time")]
        acquire_time: Option<Timestamp>,
        /// When the holder last renewed it.
        #[serde(with = "time")]
        renew_time: Option<Timestamp>,
        /// How often it changed hands.
        lease_transitions: Option<i32>,
    }

    /// A wish for a certificate.
    CertificateSigningRequestSpec {
        /// The request in PEM.
        request: Base64,
        /// The signer that is asked.
        signer_name: Box<str>,
        /// For how long.
        expiration_seconds: Option<i32>,
        /// The usages that are asked for.
        usages: Vec<Box<str>>,
        /// The user that asked.
        username: Box<str>,
        /// The groups of who asked.
        groups: Vec<Box<str>>,
    }

    /// What became of a wish for a certificate.
    CertificateSigningRequestStatus {
        /// Observations: `Approved`, `Denied`, `Failed`.
        conditions: Vec<Condition>,
        /// The certificate in PEM.
        certificate: Base64,
    }

    /// Roots that are to be trusted.
    ClusterTrustBundleSpec {
        /// The signer that the roots belong to.
        signer_name: Box<str>,
        /// The roots in PEM.
        trust_bundle: Box<str>,
    }

    /// Webhooks that may change objects before they are stored.
    MutatingWebhooks {
        /// The webhooks.
        webhooks: Vec<Webhook>,
    }

    /// Webhooks that may refuse objects before they are stored.
    ValidatingWebhooks {
        /// The webhooks.
        webhooks: Vec<Webhook>,
    }

    /// One webhook.
    Webhook {
        /// Name of the webhook.
        name: Box<str>,
        /// Where it is.
        client_config: WebhookClientConfig,
        /// What it is asked about.
        rules: Vec<WebhookRule>,
        /// What happens when it does not answer: `Fail` or `Ignore`.
        failure_policy: Option<Box<str>>,
        /// Which namespaces it is asked about.
        namespace_selector: Option<LabelSelector>,
        /// Which objects it is asked about.
        object_selector: Option<LabelSelector>,
    }

    /// Where a webhook is.
    WebhookClientConfig {
        /// At a URL,
        url: Option<Box<str>>,
        /// or at a service.
        service: Option<WebhookService>,
        /// The roots its certificate is checked with, in PEM.
        ca_bundle: Base64,
    }

    /// The service of a webhook.
    WebhookService {
        /// The namespace.
        namespace: Box<str>,
        /// The name.
        name: Box<str>,
        /// The path.
        path: Option<Box<str>>,
        /// The port.
        port: Option<u16>,
    }

    /// What a webhook is asked about.
    WebhookRule {
        /// `CREATE`, `UPDATE`, `DELETE`, `*`.
        operations: Vec<Box<str>>,
        /// Groups.
        api_groups: Vec<Box<str>>,
        /// Versions.
        api_versions: Vec<Box<str>>,
        /// Plurals.
        resources: Vec<Box<str>>,
        /// `Cluster`, `Namespaced` or `*`.
        scope: Option<Box<str>>,
    }

    /// A kind that the cluster learnt.
    CustomResourceDefinitionSpec {
        /// Group of the custom resource.
        group: Box<str>,
        /// Names under which the API server serves the custom resource.
        names: CustomResourceNames,
        /// `Cluster` or `Namespaced`.
        scope: Box<str>,
        /// Versions of the custom resource, served or not.
        versions: Vec<CustomResourceVersion>,
    }

    /// The names of a kind.
    CustomResourceNames {
        /// The kind.
        kind: Box<str>,
        /// The name in URLs.
        plural: Box<str>,
        /// The name for one.
        singular: Box<str>,
        /// What people type.
        short_names: Vec<Box<str>>,
    }

    /// A version of a kind.
    CustomResourceVersion {
        /// Name of the version, such as `v1beta1`.
        name: Box<str>,
        /// Whether objects can be read and written in it.
        served: bool,
        /// Whether objects are stored in it.
        storage: bool,
    }

    /// What became of a kind.
    CustomResourceDefinitionStatus {
        /// Observations: `Established`.
        conditions: Vec<Condition>,
    }
}

slim!(
    ServiceAccountData in Root,
    LeaseSpec,
    CertificateSigningRequestSpec,
    CertificateSigningRequestStatus,
    ClusterTrustBundleSpec,
    MutatingWebhooks in Root,
    ValidatingWebhooks in Root,
    CustomResourceDefinitionSpec,
    CustomResourceDefinitionStatus,
);
