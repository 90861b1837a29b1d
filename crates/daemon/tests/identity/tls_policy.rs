//! `--tls-min-version`, `--tls-cipher-suites` and `COMPLIANCE_POLICY`, as OpenSSL meets them on both TLS ports.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::plane::{NAME, Plane};

/// What a handshake came to, or that there was none.
async fn shake_hands(address: SocketAddr, arguments: &[&str]) -> Result<Option<String>> {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &address.to_string(), "-servername", NAME, "-brief"]);
    command.args(arguments).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await?.context("openssl")?;
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    ensure!(!said.contains("unknown option") && !said.contains("Usage:"), "{arguments:?}: {said}");
    Ok(said.contains("CONNECTION ESTABLISHED").then_some(said))
}

struct Case {
    flags: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    /// Handshakes that come about, with what is agreed on.
    accepted: &'static [(&'static [&'static str], &'static str)],
    refused: &'static [&'static [&'static str]],
}

const TLS12: &str = "-tls1_2";
const TLS13: &str = "-tls1_3";

const CASES: [Case; 6] = [
    Case {
        flags: &[],
        variables: &[],
        accepted: &[
            (&[TLS12], "Protocol version: TLSv1.2"),
            (&[TLS13], "Protocol version: TLSv1.3"),
            (&[TLS12, "-cipher", "ECDHE-RSA-CHACHA20-POLY1305"], "ECDHE-RSA-CHACHA20-POLY1305"),
        ],
        refused: &[&["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"], &[TLS12, "-cipher", "AES128-SHA"]],
    },
    Case {
        flags: &["--tls-min-version=VersionTLS13"],
        variables: &[],
        accepted: &[(&[TLS13], "Protocol version: TLSv1.3")],
        refused: &[&[TLS12]],
    },
    Case {
        flags: &["--tls-min-version=TLSV1_2", "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"],
        variables: &[],
        // Parity: the flag chooses among the suites of TLS 1.2; those of 1.3 are always there.
        accepted: &[
            (&[TLS12], "ECDHE-RSA-AES256-GCM-SHA384"),
            (&[TLS13, "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"], "TLS_CHACHA20_POLY1305_SHA256"),
        ],
        refused: &[&[TLS12, "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"]],
    },
    Case {
        flags: &["--tls-min-version=1.3"],
        variables: &[("COMPLIANCE_POLICY", "fips-140-2")],
        // The standard goes before the flag: it knows no TLS 1.3.
        accepted: &[(&[TLS12, "-groups", "P-256"], "GCM")],
        refused: &[
            &[TLS13],
            &[TLS12, "-groups", "X25519"],
            &[TLS12, "-cipher", "ECDHE-RSA-CHACHA20-POLY1305"],
        ],
    },
    Case {
        flags: &[],
        variables: &[("COMPLIANCE_POLICY", "fips-140-3")],
        accepted: &[
            (&[TLS12, "-groups", "P-384"], "GCM"),
            (&[TLS13, "-groups", "P-256"], "Protocol version: TLSv1.3"),
        ],
        refused: &[
            &[TLS13, "-groups", "X25519"],
            &[TLS13, "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"],
            &[TLS12, "-cipher", "ECDHE-RSA-CHACHA20-POLY1305"],
        ],
    },
    Case {
        flags: &[],
        variables: &[("COMPLIANCE_POLICY", "pqc")],
        // Which OpenSSL has a key exchange that quantum computers do not break differs; all have the others.
        accepted: &[],
        refused: &[&[TLS12], &[TLS13, "-groups", "X25519:P-256:P-384"]],
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn ports_shake_hands_as_flags_and_standards_say() -> Result<()> {
    for Case { flags, variables, accepted, refused } in CASES {
        let plane = Plane::start_with(|_, command| {
            command.args(flags).envs(variables.iter().copied());
            Ok(())
        })
        .await?;
        let context = || format!("{flags:?} {variables:?}");
        for address in [plane.secure, plane.webhooks] {
            for (arguments, agreed) in accepted {
                let said = shake_hands(address, arguments).await?;
                let said = said.with_context(|| format!("{}: no handshake with {arguments:?}", context()))?;
                ensure!(said.contains(agreed), "{}: {arguments:?}: {said}", context());
            }
            for arguments in refused {
                let said = shake_hands(address, arguments).await?;
                ensure!(said.is_none(), "{}: {arguments:?} should be refused: {said:?}", context());
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_of_a_standard_against_quantum_computers_shake_hands_by_it() -> Result<()> {
    let plane = Plane::start_with(|_, command| {
        command.env("COMPLIANCE_POLICY", "pqc");
        Ok(())
    })
    .await?;
    // The library's own client offers the hybrid key exchange.
    plane.cart().await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_about_tls_that_mean_nothing_end_the_process_with_the_reason() -> Result<()> {
    for (flag, variable, reason) in [
        ("--tls-min-version=1.1", "", r#"--tls-min-version: "1.1" is neither 1.2 nor 1.3"#),
        ("--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA", "", "is not known or not safe"),
        ("--tls-min-version=1.2", "fips-140-1", "COMPLIANCE_POLICY"),
    ] {
        let started = Plane::start_with(|_, command| {
            command.arg(flag).env("COMPLIANCE_POLICY", variable);
            Ok(())
        })
        .await;
        let error = format!("{:#}", started.err().with_context(|| format!("{flag} {variable} was taken"))?);
        ensure!(error.contains(reason), "{flag} {variable}: {error}");
    }
    Ok(())
}
