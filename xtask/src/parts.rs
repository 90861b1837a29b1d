use canopus_parts::{Part, cache_dir, ensure, find};

/// Installs the real components that tests and the demo run against.
///
/// Each is fetched or built once, with the ordinary clients (pip, go, apt-get), into a per-user cache: $CANOPUS_CACHE, else
/// $XDG_CACHE_HOME/canopus, else ~/.cache/canopus. Without a name, all parts are installed.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask parts                     install everything (at first, minutes of compilation)
  cargo xtask parts envoy               install Envoy alone (seconds)
  cargo xtask parts --list              what there is and what is installed
  PATH=$(cargo xtask parts kube --path):$PATH kubectl version --client")]
pub(crate) struct Arguments {
    /// Parts to install.
    #[arg(value_name = "NAME")]
    names: Vec<Part>,

    /// List the parts with versions, purposes and whether they are installed; install nothing.
    #[arg(long)]
    list: bool,

    /// Print the directory of each part's executables, and nothing else, on standard output.
    #[arg(long, conflicts_with = "list")]
    path: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let chosen = if arguments.names.is_empty() { &Part::ALL } else { arguments.names.as_slice() };
    if arguments.list {
        return list(chosen);
    }
    for (part, directory) in ensure(chosen)?.iter() {
        if arguments.path {
            println!("{}", directory.display());
        } else {
            println!("{part} {}: {}", part.version(), directory.display());
        }
    }
    Ok(())
}

fn list(parts: &[Part]) -> anyhow::Result<()> {
    println!("cache: {}\n", cache_dir()?.display());
    println!("{:<9}{:<9}{:<15}{:<31}PURPOSE", "PART", "VERSION", "STATE", "ORIGIN");
    for part in parts {
        let state = if find(*part).is_ok() { "installed" } else { "not installed" };
        println!("{part:<9}{:<9}{state:<15}{:<31}{}", part.version(), part.origin(), part.purpose());
    }
    Ok(())
}
