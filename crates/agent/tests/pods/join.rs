//! A workload without a token of an issuer that others run: a join token of the mesh brings it in.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use canopus_identity::token::{self, Grant};
use rustls::pki_types::UnixTime;

use crate::world::{CLIENT, World};

/// The client leaves and comes back with a join token that counts once. It renews by its certificate from then on, and a
/// restart of its agent needs no other token.
pub(crate) fn token() -> Result<()> {
    let mut world = World::start("", &[], &[])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let issuer = runtime.block_on(token::open_directory(&world.plane.authority(), "istio-ca"))?;
    let grant = Grant {
        namespace: "shop".to_owned(),
        service_account: CLIENT.account.to_owned(),
        lifetime: Duration::from_secs(600),
        single_use: true,
    };
    let joining = tempfile::tempdir()?;
    let path = joining.path().join("join-token");
    fs::write(&path, issuer.issue(&grant, UnixTime::now())?)?;
    let file = path.to_str().unwrap();
    let state = joining.path().join("state");
    let variables = [
        ("CANOPUS_JOIN_TOKEN_FILE", file),
        ("OUTPUT_CERTS", "./out"),
        ("PROV_CERT", "./out"),
        ("SECRET_TTL", "8s"),
        ("CANOPUS_STATE_DIRECTORY", state.to_str().unwrap()),
    ];
    // What verifies the control plane comes with the token.
    let own = world.client.directory().join("out");
    fs::create_dir_all(&own)?;
    fs::copy(world.plane.root(), own.join("root-cert.pem"))?;
    world.rejoin(&variables)?;
    world.wait_answer()?;
    let ((), load) = world.under_load(|| {
        std::thread::sleep(Duration::from_secs(15));
        Ok(())
    })?;
    load.check(1500)?;
    let renewals = world.client.log_whole().matches("the certificate is there").count();
    ensure!(renewals >= 3, "{renewals} certificates:\n{}", world.client.log());
    // What was used up is of no use to whoever finds it.
    let stolen = fs::read_to_string(&path)?;
    let error = issuer.accept(&stolen, UnixTime::now()).unwrap_err().to_string();
    ensure!(error.contains("single use"), "{error}");
    Ok(())
}
