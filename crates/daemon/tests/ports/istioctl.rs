//! Questions as istioctl's own client asks them: a new stream of the state-of-the-world variant, a nonce of the client's own
//! making with the first request, and one answer awaited.

use super::*;
use canopus_proto::google::protobuf::{Struct, Value};

/// The node that istioctl introduces itself as, unless told otherwise.
fn istioctl(namespace: &str) -> Option<Node> {
    let id = format!("sidecar~127.0.0.1~test-1.{namespace}~{namespace}.svc.cluster.local");
    let fields = [("ISTIO_VERSION".to_owned(), Value::from("65536.65536.65536"))].into();
    Some(Node { id, metadata: Some(Struct { fields }), ..Node::default() })
}

fn question(type_url: &str, names: &[&str]) -> Request {
    Request {
        type_url: type_url.to_owned(),
        node: istioctl("istio-system"),
        nonce: "2026-11-18 13:45:22.123456789 +0000 UTC m=+0.012345678".to_owned(),
        error: None,
        wish: Wish::Exactly {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            version: String::new(),
        },
    }
}

async fn answer(channel: Channel, question: Request) -> Result<Update, Status> {
    let asked = async {
        let mut stream = AdsStream::open(channel, Protocol::Sotw, MetadataMap::new(), question).await?;
        stream.next().await?.ok_or_else(|| Status::ok("the stream ended"))
    };
    timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")))
}

const ADMINISTRATOR: &str = "spiffe://cluster.local/ns/istio-system/sa/istioctl";

#[tokio::test(flavor = "multi_thread")]
async fn first_question_of_istioctl_is_answered() -> Result<()> {
    let server = Server::start().await?;
    for (type_url, names) in [
        ("istio.io/debug/syncz", &[][..]),
        ("istio.io/debug", &["syncz"]),
        ("istio.io/debug", &["config_dump?proxyID=nobody.shop"]),
        ("istio.io/debug/config_dump", &["nobody.shop"]),
    ] {
        let answer = answer(server.channel(&[ADMINISTRATOR]).await?, question(type_url, names)).await;
        let answer = answer.with_context(|| format!("{type_url} {names:?}"))?;
        assert_eq!(answer.type_url, type_url);
    }
    server.serves_others().await
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_of_nobody_in_particular_are_refused() -> Result<()> {
    let server = Server::start().await?;
    for (type_url, names) in [("istio.io/debug/syncz", &[][..]), ("istio.io/debug", &["syncz"])] {
        let refused = answer(server.plain_channel().await?, question(type_url, names)).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{type_url}: {refused}");
    }
    Ok(())
}
