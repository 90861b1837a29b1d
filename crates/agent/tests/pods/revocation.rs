//! Revocation lists between two Envoys.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use canopus_identity::Certificate;
use canopus_testkit::PluggedAuthority;

use crate::pod::Pod;
use crate::world::{HANDSHAKE_EACH, World};

const PATIENCE: Duration = Duration::from_secs(30);

/// The serial number of the certificate that a pod has.
fn serial(pod: &Pod) -> Result<String> {
    let chain = fs::read(pod.directory().join("out/cert-chain.pem"))?;
    Ok(Certificate::from_pem(&chain)?.serial())
}

/// Puts lists where the control plane has them plugged in, and where pods have the ConfigMap mounted that it makes of them.
fn hand_out(world: &World, plugged: &Path, lists: &str) -> Result<()> {
    fs::write(plugged.join("ca-crl.pem"), lists)?;
    for pod in [&world.client, &world.server] {
        let mount = pod.directory().join("var/run/secrets/istio/crl");
        fs::write(mount.join("scratch"), lists)?;
        fs::rename(mount.join("scratch"), mount.join("ca-crl.pem"))?;
    }
    Ok(())
}

/// Waits until requests are answered, or until they are not.
fn until(world: &World, answered: bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let ((), load) = world.under_load(|| {
            std::thread::sleep(Duration::from_millis(500));
            Ok(())
        })?;
        let (failed, fine) = (load.failures.len(), load.answered);
        if if answered { failed == 0 } else { fine == 0 } {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{fine} answered, {failed} failed\nclient:\n{}\nserver:\n{}",
            world.client.log(),
            world.server.log()
        );
    }
}

/// The client's certificate is revoked, another one is, and the lists are withdrawn.
pub(crate) fn of_a_peer() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let authority = PluggedAuthority::new(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    authority.write(directory.path())?;
    let path = directory.path().to_str().unwrap();
    let world = World::start(HANDSHAKE_EACH, &[("ROOT_CA_DIR", path)], &[("OUTPUT_CERTS", "./out")])?;
    let revoke = |serials: &[&str]| hand_out(&world, directory.path(), &authority.revocations(serials)?);

    // Lists that name nobody disturb nobody.
    let ((), load) = world.under_load(|| {
        revoke(&[])?;
        std::thread::sleep(Duration::from_secs(4));
        Ok(())
    })?;
    load.check(400)?;
    for pod in [&world.client, &world.server] {
        ensure!(pod.log_whole().contains("peers are held to these revocation lists"), "{}", pod.log());
    }

    revoke(&[&serial(&world.client)?])?;
    until(&world, false)?;
    ensure!(world.server.statistic("ssl.fail_verify_error")? > 0, "the server's Envoy refused nobody");
    revoke(&["7b"])?;
    until(&world, true)?;

    revoke(&[&serial(&world.server)?])?;
    until(&world, false)?;
    // Withdrawn: the control plane empties the ConfigMap.
    hand_out(&world, directory.path(), "")?;
    until(&world, true)
}
