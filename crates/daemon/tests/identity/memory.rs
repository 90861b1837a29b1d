//! What is left of private keys in the memory of the process.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_testkit::{Certified, KeyForm, KeyTraces, PluggedAuthority, channel, eventually};

use crate::plane::{CART, NAME, Plane, certify};

const PATIENCE: Duration = Duration::from_secs(30);

/// A control plane with a plugged-in authority, and the directory of its files.
pub(crate) async fn plugged(authority: &PluggedAuthority) -> Result<(Plane, PathBuf)> {
    let plane = Plane::start_with(|directory, _| authority.write(&directory.join("etc/cacerts"))).await?;
    let files = plane.mesh.objects().with_file_name("etc").join("cacerts");
    Ok((plane, files))
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_plugged_in_key_but_what_signs_and_nothing_at_all_when_it_is_replaced()
-> Result<()> {
    for algorithm in [&rcgen::PKCS_RSA_SHA256, &rcgen::PKCS_ECDSA_P256_SHA256] {
        let mut authority = PluggedAuthority::new(algorithm)?;
        let (plane, files) = plugged(&authority).await?;
        let process = plane.mesh.id().context("it has ended")?;
        let token = plane.token(false).await?;
        let root = authority.root();
        let sign = async || -> Result<Certified> {
            let channel = channel(&root, plane.secure, NAME, None).await?;
            certify(channel, CART, Some(&token)).await.context("a certificate")
        };
        sign().await?;

        // What signs is found, so that whoever looks does look; the text of the file and its decoded form are gone.
        let first = KeyTraces::from_pem("the first key", authority.key())?;
        assert_eq!(first.in_memory_of(process)?, BTreeSet::from([KeyForm::Number]), "{algorithm:?}");

        authority.renew(algorithm)?;
        authority.write(&files)?;
        eventually("the new key", PATIENCE, async || {
            ensure!(plane.mesh.log().contains("the plugged-in CA was replaced"), "{}", plane.mesh.log());
            Ok(())
        })
        .await?;
        sign().await?;
        let second = KeyTraces::from_pem("the second key", authority.key())?;
        eventually("nothing of the first key", PATIENCE, async || {
            assert_eq!(second.in_memory_of(process)?, BTreeSet::from([KeyForm::Number]), "{algorithm:?}");
            let left = first.in_memory_of(process)?;
            ensure!(left.is_empty(), "{algorithm:?}: {left:?}");
            Ok(())
        })
        .await?;
        // A key that is half written is refused, and is not kept either.
        let broken = PluggedAuthority::new(algorithm)?;
        let traces = KeyTraces::from_pem("the broken key", broken.key())?;
        fs::write(files.join("ca-key.pem"), broken.key())?;
        eventually("the refusal", PATIENCE, async || {
            ensure!(plane.mesh.log().contains("the plugged-in CA stays as it was"), "{}", plane.mesh.log());
            Ok(())
        })
        .await?;
        assert_eq!(traces.in_memory_of(process)?, BTreeSet::new(), "{algorithm:?}");
    }
    Ok(())
}
