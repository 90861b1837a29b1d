//! Our definitions of Istio's kinds in a real cluster: it takes them, and it takes, changes and refuses objects as we say
//! it will. The names of the tests begin with `real_`, which `cargo xtask test --quick` leaves out.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests are tests")]

mod cluster;
#[path = "../support/corpus.rs"]
mod corpus;
mod variants;

use std::collections::BTreeSet;

use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;

use cluster::Cluster;

#[tokio::test]
async fn real_cluster_judges_objects_as_we_do() {
    let cluster = Cluster::start().await;
    let accepted = documents(include_str!("accepted.yaml"));
    let refused = documents(include_str!("refused.yaml"));

    let mut differences = Vec::new();
    for (documents, accepts) in [(&accepted, true), (&refused, false)] {
        for document in documents {
            let opinions = cluster.ask(document).await;
            if opinions.server.is_accepted() != accepts {
                differences.push(format!(
                    "{}: accepted should be {accepts}: {:#?}",
                    name(document),
                    opinions.server
                ));
            }
            differences.extend(opinions.difference());
        }
    }
    let from_corpus = corpus_documents();
    let variants: Vec<Node> = accepted.iter().flat_map(variants::derive_variants).collect();
    for document in from_corpus.iter().chain(&variants) {
        differences.extend(cluster.ask(document).await.difference());
    }

    let asked = accepted.len() + refused.len() + from_corpus.len() + variants.len();
    println!("{asked} objects, {} of them from the corpus", from_corpus.len());
    assert!(differences.is_empty(), "{} of {asked}:\n{}", differences.len(), differences.join("\n"));
}

fn documents(text: &str) -> Vec<Node> {
    let documents = yaml::parse_all(text, &Limits::default()).into_iter();
    documents.map(|document| document.unwrap().node).collect()
}

/// The documents of the corpus, without what it has written into them.
fn corpus_documents() -> Vec<Node> {
    let Some(directory) = corpus::directory() else { return Vec::new() };
    let index = corpus::documents(&directory.join("cases.yaml"));
    let cases = index[0].get("cases").and_then(Node::as_list).unwrap();
    let files: BTreeSet<_> =
        cases.iter().map(|case| case.get("file").and_then(Node::as_str).unwrap()).collect();
    let mut found: Vec<Node> =
        files.iter().flat_map(|file| corpus::documents(&directory.join(file))).collect();
    for document in &mut found {
        document.as_map_mut().unwrap().remove("_err");
    }
    found
}

fn name(document: &Node) -> &str {
    document.pointer("/metadata/name").and_then(Node::as_str).unwrap_or_default()
}
