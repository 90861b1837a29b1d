use std::convert::Infallible;
use std::net::SocketAddr;

use canopus_proto::envoy::config::core::v3::TypedExtensionConfig;
use canopus_proto::envoy::extensions::filters::http::{rbac, wasm};
use canopus_proto::{Any, Message as _, json, type_url};
use http::{Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;

use super::archive::tests::{gzip, tar};
use super::*;
use crate::fetch::AddressGuard;
use crate::upstream::Roots;

const MODULE: &[u8] = b"\0asm\x01\0\0\0 a module";

/// A registry that wants a token, for one image in a form of choice, and a web server for the module itself.
struct ImageRegistry {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

fn answer(request: &Request<Incoming>, address: SocketAddr, is_artifact: bool) -> Response<Full<Bytes>> {
    let layer = if is_artifact { MODULE.to_vec() } else { gzip(&tar("plugin.wasm", MODULE)) };
    let kind = if is_artifact {
        "application/vnd.module.wasm.content.layer.v1+wasm"
    } else {
        "application/vnd.oci.image.layer.v1.tar+gzip"
    };
    let digest = format!("sha256:{}", sha256(&layer));
    let manifest =
        json!({"layers": [{"mediaType": kind, "digest": digest, "size": layer.len()}]}).to_string();
    let plain = |status: u16, body: Vec<u8>| {
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response
    };
    let path = request.uri().path();
    let has_token = request.headers().get(header::AUTHORIZATION).is_some_and(|value| value == "Bearer good");
    if path == "/token" {
        let is_user = request.headers().get(header::AUTHORIZATION).is_some_and(|value| value == "Basic dTpw");
        return if is_user { plain(200, b"{\"token\": \"good\"}".to_vec()) } else { plain(401, Vec::new()) };
    }
    if path == "/module.wasm" {
        return plain(200, MODULE.to_vec());
    }
    if path == "/redirect" {
        let mut response = plain(302, Vec::new());
        response.headers_mut().insert(header::LOCATION, "http://169.254.169.254/latest".parse().unwrap());
        return response;
    }
    if !has_token {
        let mut response = plain(401, Vec::new());
        let challenge =
            format!(r#"Bearer realm="http://{address}/token",service="r",scope="repository:a/b:pull""#);
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge.parse().unwrap());
        return response;
    }
    match path {
        "/v2/a/b/manifests/v1" => plain(200, manifest.into_bytes()),
        path if path == format!("/v2/a/b/blobs/{digest}") => plain(200, layer),
        _ => plain(404, Vec::new()),
    }
}

impl ImageRegistry {
    async fn start(is_artifact: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let log = Arc::clone(&log);
                let service = service_fn(move |request: Request<Incoming>| {
                    log.lock().push(request.uri().path().to_owned());
                    let answer = answer(&request, address, is_artifact);
                    async move { Ok::<_, Infallible>(answer) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, asked }
    }
}

fn modules(directory: &Path, guard: AddressGuard) -> Arc<WasmModules> {
    let settings = WasmSettings {
        directory: directory.to_owned(),
        max_bytes: 1 << 20,
        insecure: vec!["*".into()],
        request_timeout: Duration::from_secs(5),
        tries: 1,
        expiry: Duration::from_secs(3600),
        purge_interval: Duration::from_secs(3600),
    };
    WasmModules::new(settings, Fetcher::new(guard, Roots::System), &Registry::new())
}

fn request(url: String, policy: PullPolicy, version: &str) -> ModuleRequest {
    ModuleRequest {
        url,
        checksum: String::new(),
        resource: "shop.filter".into(),
        version: version.into(),
        timeout: Duration::from_secs(10),
        secret: Some(PullSecret::new(r#"{"auths": {"127.0.0.1": {"auth": "dTpw"}}}"#.into())),
        policy,
    }
}

fn secret(address: SocketAddr) -> PullSecret {
    PullSecret::new(json!({"auths": {address.to_string(): {"auth": "dTpw"}}}).to_string())
}

#[tokio::test]
async fn image_is_pulled_with_credentials_in_both_forms() {
    for is_artifact in [false, true] {
        let registry = ImageRegistry::start(is_artifact).await;
        let directory = tempfile::tempdir().unwrap();
        let modules = modules(directory.path(), AddressGuard::new(&[], true).unwrap());
        let mut wanted = request(format!("oci://{}/a/b:v1", registry.address), PullPolicy::Always, "1");
        wanted.secret = Some(secret(registry.address));
        let path = modules.module(&wanted).await.unwrap();
        assert_eq!(fs::read(&path).unwrap(), MODULE);
        let asked = registry.asked.lock().len();
        assert_eq!(modules.module(&wanted).await.unwrap(), path);
        assert_eq!(registry.asked.lock().len(), asked, "the same version of the plug-in asks nobody");
        wanted.version = "2".into();
        modules.module(&wanted).await.unwrap();
        assert!(registry.asked.lock().len() > asked, "another version asks again");
        wanted.checksum = "00".repeat(32);
        let error = modules.module(&wanted).await.unwrap_err().to_string();
        assert!(error.contains("does not match"), "{error}");
    }
}

#[tokio::test]
async fn image_is_refused_without_credentials() {
    let registry = ImageRegistry::start(false).await;
    let directory = tempfile::tempdir().unwrap();
    let modules = modules(directory.path(), AddressGuard::new(&[], true).unwrap());
    let wanted = request(format!("oci://{}/a/b:v1", registry.address), PullPolicy::Always, "1");
    let error = modules.module(&wanted).await.unwrap_err().to_string();
    assert!(error.contains("401") && error.contains("imagePullSecret"), "{error}");
}

#[tokio::test]
async fn connections_that_nobody_should_make_are_not_made() {
    let registry = ImageRegistry::start(false).await;
    let directory = tempfile::tempdir().unwrap();
    let closed = modules(directory.path(), AddressGuard::default());
    let url = |path: &str| format!("http://{}/{path}", registry.address);
    let wanted = |path: &str| request(url(path), PullPolicy::Unspecified, "1");
    let error = closed.module(&wanted("module.wasm")).await.unwrap_err().to_string();
    assert!(error.contains("loopback"), "{error}");
    let open = modules(directory.path(), AddressGuard::new(&[], true).unwrap());
    let error = open.module(&wanted("redirect")).await.unwrap_err().to_string();
    assert!(error.contains("link-local"), "{error}");
    assert!(open.module(&wanted("module.wasm")).await.is_ok());
    let error = open.module(&request("ftp://x/y".into(), PullPolicy::Always, "1")).await.unwrap_err();
    assert!(matches!(error, WasmError::Scheme(_)));
}

fn resource(url: &str, failure_policy: &str) -> Any {
    let filter = json!({"config": {
        "name": "shop.filter",
        "failurePolicy": failure_policy,
        "vmConfig": {
            "code": {"remote": {"httpUri": {"uri": url, "timeout": "5s", "cluster": "x"}, "sha256": "nil"}},
            "environmentVariables": {"keyValues": {"ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION": "7", "MINE": "1"}},
        },
    }});
    let filter: wasm::v3::Wasm = json::read(&filter.into(), json::Unknown::Report).unwrap().value;
    let typed = Any { type_url: type_url::<wasm::v3::Wasm>(), value: filter.encode_to_vec().into() };
    let extension = TypedExtensionConfig { name: "shop.filter".into(), typed_config: Some(typed) };
    Any { type_url: type_url::<TypedExtensionConfig>(), value: extension.encode_to_vec().into() }
}

fn typed(any: &Any) -> Any {
    TypedExtensionConfig::decode(any.value.clone()).unwrap().typed_config.unwrap()
}

#[tokio::test]
async fn configuration_refers_to_a_local_file_without_internal_variables() {
    let registry = ImageRegistry::start(false).await;
    let directory = tempfile::tempdir().unwrap();
    let modules = modules(directory.path(), AddressGuard::new(&[], true).unwrap());
    let url = format!("http://{}/module.wasm", registry.address);
    let localised = modules.localise(vec![resource(&url, "FAIL_CLOSED")]).await.unwrap();
    let filter = wasm::v3::Wasm::decode(typed(&localised[0]).value).unwrap();
    let text = json::write(&filter).to_json().to_string();
    assert!(text.contains(".wasm") && text.contains("filename"), "{text}");
    assert!(text.contains("MINE") && !text.contains("ISTIO_META"), "{text}");
}

#[tokio::test]
async fn module_that_cannot_be_had_lets_through_what_the_strategy_says() {
    let directory = tempfile::tempdir().unwrap();
    let modules = modules(directory.path(), AddressGuard::default());
    for (policy, has_rules) in [("FAIL_CLOSED", true), ("FAIL_OPEN", false)] {
        let localised = modules.localise(vec![resource("http://127.0.0.1:9/x", policy)]).await.unwrap();
        let typed = typed(&localised[0]);
        assert_eq!(typed.type_url, type_url::<rbac::v3::Rbac>());
        let substitute = rbac::v3::Rbac::decode(typed.value).unwrap();
        assert_eq!(substitute.rules.is_some(), has_rules, "{policy}");
    }
}

#[tokio::test]
async fn extension_that_is_broken_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let modules = modules(directory.path(), AddressGuard::default());
    let empty = TypedExtensionConfig { name: "broken".into(), ..Default::default() };
    let any = Any { type_url: type_url::<TypedExtensionConfig>(), value: empty.encode_to_vec().into() };
    assert!(modules.localise(vec![any]).await.unwrap_err().contains("broken"));
}

#[tokio::test]
async fn module_of_the_last_good_state_is_not_removed() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join("name").join(name);
    fs::create_dir(directory.path().join("name")).unwrap();
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(7200);
    for name in ["needed.wasm", "old.wasm", "new.wasm"] {
        fs::write(file(name), MODULE).unwrap();
        if name != "new.wasm" {
            fs::File::open(file(name)).unwrap().set_modified(long_ago).unwrap();
        }
    }
    let modules = modules(directory.path(), AddressGuard::open());
    tokio::spawn(modules.purge(|path| path.ends_with("needed.wasm")));
    tokio::task::yield_now().await;
    assert!(file("needed.wasm").exists() && file("new.wasm").exists());
    assert!(!file("old.wasm").exists());
}
