//! `istio.v1.auth.IstioCertificateService` on the port with TLS.

use std::sync::Arc;

use axum::http::{Request, Response};
use canopus_identity::service::{self, CertificateService, Code, Refusal};
use canopus_proto::istio::v1::auth::istio_certificate_service_server::{
    IstioCertificateService, IstioCertificateServiceServer,
};
use canopus_proto::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};
use tonic::body::Body;
use tonic::codegen::async_trait;
use tonic::{Response as Answer, Status};
use tower_service::Service as _;
use tracing::warn;

use crate::authentication::Caller;
use crate::authentication::{Authenticators, Door, Presented};
use crate::certificate_authority::{IssuedCertificates, Signers};

/// What its methods start with.
pub(super) const PREFIX: &str = "/istio.v1.auth.IstioCertificateService/";

/// The header by which a client says which cluster it is in.
const CLUSTER: &str = "clusterid";

/// Issues certificates to whoever proves an identity.
#[derive(Clone)]
pub struct Issuing {
    service: CertificateService,
    signers: Signers,
    authenticators: Arc<Authenticators>,
    issued: Arc<IssuedCertificates>,
}

impl Issuing {
    /// Issues what these signers sign, and takes note of it.
    pub fn new(
        service: CertificateService,
        signers: Signers,
        authenticators: Arc<Authenticators>,
        issued: Arc<IssuedCertificates>,
    ) -> Self {
        Self { service, signers, authenticators, issued }
    }

    async fn caller(&self, request: &tonic::Request<IstioCertificateRequest>) -> service::Caller {
        let transport = request.extensions().get::<Caller>().cloned();
        let headers = request.metadata().clone().into_headers();
        let certified = transport.as_ref().and_then(|caller| caller.identities.as_deref());
        let presented = Presented {
            address: transport.as_ref().and_then(|caller| caller.address),
            certified: certified.unwrap_or_default(),
            headers: &headers,
            door: Door::Certificate,
        };
        let proof = match self.authenticators.prove(&presented).await {
            Ok(proof) => proof,
            Err(reasons) => {
                warn!(peer = ?presented.address, %reasons, "a certificate is refused to somebody unknown");
                return service::Caller::default();
            }
        };
        let pod = proof.owner.map(|owner| {
            let (name, uid) = owner.pod.map(|pod| (pod.name, pod.uid)).unwrap_or_default();
            service::Pod {
                namespace: owner.namespace.into(),
                name: name.into(),
                uid: uid.into(),
                service_account: owner.service_account.into(),
            }
        });
        let cluster = headers.get(CLUSTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        service::Caller { identities: proof.identities, pod, cluster }
    }
}

#[async_trait]
impl IstioCertificateService for Issuing {
    async fn create_certificate(
        &self,
        request: tonic::Request<IstioCertificateRequest>,
    ) -> Result<Answer<IstioCertificateResponse>, Status> {
        let caller = self.caller(&request).await;
        let order = self.service.admit(&caller, request.get_ref()).map_err(status)?;
        let identities = order.identities.clone();
        let signed =
            self.signers.sign(order).await.map_err(|busy| Status::resource_exhausted(busy.to_string()))?;
        let cert_chain = self.service.answer(signed).map_err(status)?;
        self.issued.note(&identities, &cert_chain);
        Ok(Answer::new(IstioCertificateResponse { cert_chain }))
    }
}

fn status(refusal: Refusal) -> Status {
    let code = match refusal.code {
        Code::InvalidArgument => tonic::Code::InvalidArgument,
        Code::Internal => tonic::Code::Internal,
        Code::Unauthenticated => tonic::Code::Unauthenticated,
    };
    Status::new(code, refusal.message)
}

/// Answers a call. Parity: on a port without TLS, and where nothing is issued, there is no such service.
pub(super) async fn answer(request: Request<Body>, issuing: Option<Issuing>) -> Response<Body> {
    let is_private = request.extensions().get::<Caller>().is_some_and(|caller| caller.identities.is_some());
    let Some(issuing) = issuing.filter(|_| is_private) else {
        let service = PREFIX.trim_matches('/');
        return Status::unimplemented(format!("unknown service {service}")).into_http();
    };
    match IstioCertificateServiceServer::new(issuing).call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
