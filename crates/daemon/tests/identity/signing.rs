//! Signing has threads and a queue of its own: however many certificates are asked for, configuration goes out at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};
use canopus_proto::istio::v1::auth::IstioCertificateRequest;
use canopus_proto::istio::v1::auth::istio_certificate_service_client::IstioCertificateServiceClient;
use canopus_testkit::channel;
use rcgen::{CertificateParams, KeyPair};
use tokio::task::JoinSet;
use tonic::Code;

use crate::plane::{self, NAME, Plane, has_cluster_of, service};

/// More than may wait at once.
const REQUESTS: usize = 5000;

#[tokio::test(flavor = "multi_thread")]
async fn push_goes_out_while_the_queue_of_certificate_requests_is_full() -> Result<()> {
    // Each signature takes its time with a key of this size.
    let plane = Plane::start_with(|_, command| {
        command.env("CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE", "4096");
        Ok(())
    })
    .await?;
    let own = plane.cart().await?;
    let roots = plane.roots()?;
    let mut proxy = plane::proxy(channel(&roots, plane.secure, NAME, Some(&own)).await?);
    plane.mesh.write("one.yaml", &service("one.example.com"))?;
    has_cluster_of(&mut proxy, "one.example.com").await?;

    let csr = CertificateParams::default().serialize_request(&KeyPair::generate()?)?.pem()?;
    let answered = Arc::new(AtomicUsize::new(0));
    let mut requests = JoinSet::new();
    for _ in 0..4 {
        let channel = channel(&roots, plane.secure, NAME, Some(&own)).await?;
        for _ in 0..REQUESTS / 4 {
            let mut client = IstioCertificateServiceClient::new(channel.clone());
            let (request, answered) =
                (IstioCertificateRequest { csr: csr.clone(), ..Default::default() }, Arc::clone(&answered));
            requests.spawn(async move {
                let answer = client.create_certificate(request).await;
                answered.fetch_add(1, Ordering::Relaxed);
                answer.map(drop)
            });
        }
    }
    // Some are refused at once because too many wait: the queue is full from here on.
    let mut refused = 0;
    while refused == 0 {
        let answer = requests.join_next().await.context("nothing was refused")??;
        refused += usize::from(answer.is_err_and(|status| status.code() == Code::ResourceExhausted));
    }
    plane.mesh.write("two.yaml", &service("two.example.com"))?;
    has_cluster_of(&mut proxy, "two.example.com").await?;
    let waiting = REQUESTS - answered.load(Ordering::Relaxed);
    ensure!(waiting > REQUESTS / 4, "the push came when only {waiting} requests were left");

    // Whoever was not refused gets a certificate.
    while let Some(answer) = requests.join_next().await {
        match answer? {
            Ok(()) => {}
            Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status}"),
        }
    }
    Ok(())
}
