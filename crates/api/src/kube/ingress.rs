//! Ingresses and their classes.

use crate::decode::slim;
use crate::kube::LoadBalancerStatus;
use crate::macros::{object, open_enum};
use crate::resource::Resource;

/// Routes from outside, in Kubernetes' first way of saying them.
pub type Ingress = Resource<IngressSpec, IngressStatus>;
/// A class of ingresses and the controller that implements it.
pub type IngressClass = Resource<IngressClassSpec>;

open_enum! {
    /// How the path of a rule is compared.
    PathType {
        /// The implementation decides how the path matches.
        ImplementationSpecific = "ImplementationSpecific",
        /// The whole path.
        Exact = "Exact",
        /// Element by element.
        Prefix = "Prefix",
    }
}

object! {
    /// What an ingress is.
    IngressSpec {
        /// Name of the IngressClass.
        ingress_class_name: Option<Box<str>>,
        /// Where traffic goes that no rule takes.
        default_backend: Option<IngressBackend>,
        /// Certificates.
        tls: Vec<IngressTls>,
        /// The routes.
        rules: Vec<IngressRule>,
    }

    /// A certificate and the hosts it is for.
    IngressTls {
        /// The hosts.
        hosts: Vec<Box<str>>,
        /// The secret with the certificate.
        secret_name: Box<str>,
    }

    /// Routes of one host.
    IngressRule {
        /// The host; empty for all.
        host: Box<str>,
        /// The routes.
        http: Option<IngressHttp>,
    }

    /// Routes by path.
    IngressHttp {
        /// The routes.
        paths: Vec<IngressPath>,
    }

    /// A route.
    IngressPath {
        /// The path.
        path: Box<str>,
        /// How it is compared.
        path_type: PathType = PathType::ImplementationSpecific,
        /// Where traffic goes.
        backend: IngressBackend,
    }

    /// Where traffic goes.
    IngressBackend {
        /// A service.
        service: Option<IngressService>,
    }

    /// A service and one of its ports.
    IngressService {
        /// The service.
        name: Box<str>,
        /// The port.
        port: IngressPort,
    }

    /// A port by name or by number.
    IngressPort {
        /// The name, if by name.
        name: Box<str>,
        /// The number, if by number.
        number: u16,
    }

    /// What became of an ingress.
    IngressStatus {
        /// Where traffic enters.
        load_balancer: LoadBalancerStatus,
    }

    /// The controller that implements ingresses of a class.
    IngressClassSpec {
        /// The controller.
        controller: Box<str>,
    }
}

slim!(IngressSpec, IngressStatus, IngressClassSpec);
