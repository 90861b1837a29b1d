//! Records which commit and compiler a build came from.
//!
//! Each value can be given by an environment variable, for builds from an archive. Git is asked otherwise; where it is
//! absent the build goes on and says "unknown".

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let release = variable("PROFILE").as_deref() == Some("release");
    if release {
        // Development builds keep what they first saw: watching the commit would rebuild every crate at each one.
        for file in ["HEAD", "index"] {
            if let Some(path) = git(&["rev-parse", "--git-path", file]) {
                println!("cargo:rerun-if-changed={path}");
            }
        }
    }

    record("CANOPUS_GIT_REVISION", || git(&["rev-parse", "HEAD"]));
    record("CANOPUS_GIT_STATUS", status);
    record("CANOPUS_GIT_TAG", || git(&["describe", "--tags", "--always"]));
    record("CANOPUS_RUST_VERSION", rust_version);
}

fn record(name: &str, found: impl FnOnce() -> Option<String>) {
    println!("cargo:rerun-if-env-changed={name}");
    let value = variable(name).or_else(found).unwrap_or_else(|| {
        println!("cargo:warning={name} is not known: not a git checkout? it can be set in the environment");
        "unknown".to_owned()
    });
    println!("cargo:rustc-env={name}={value}");
}

fn status() -> Option<String> {
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changes.is_empty() { "Clean" } else { "Modified" }.to_owned())
}

fn rust_version() -> Option<String> {
    let text = run(&variable("RUSTC")?, &["--version"])?;
    let number = text.split_ascii_whitespace().nth(1)?;
    Some(format!("rustc {number}"))
}

fn git(arguments: &[&str]) -> Option<String> {
    run("git", arguments)
}

fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = output.status.success().then_some(output.stdout)?;
    Some(String::from_utf8(text).ok()?.trim().to_owned())
}

#[expect(clippy::disallowed_methods, reason = "a build script is configured by its environment")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
