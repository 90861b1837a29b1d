//! Clients that reject whatever they are sent.

use super::*;

/// A proxy rejects the last that it was sent, whatever it said of it before.
fn reject(mesh: &Mesh, proxy: usize) {
    let proxy = &mesh.proxies[proxy];
    let nack = SessionEvent::Nacked {
        type_url: types::CLUSTER.into(),
        nonce: proxy.messages.to_string(),
        code: Code::Internal as i32,
        message: "no".to_owned(),
        accepted: ResourceSet::default(),
        refused: proxy.last.clone(),
    };
    mesh.dispatcher.connections().record(&proxy.connection, &nack);
}

#[test]
fn rejections_that_wait_are_few_for_one_identity_and_bounded_for_all() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &filter("good")].join("---"));
    let connections = 20;
    (0..connections).for_each(|_| mesh.connect("loud", false));
    mesh.settle();
    let waiting = |mesh: &Mesh| mesh.controller.quarantine().state.lock().waiting.len();

    mesh.write(&filter("better"));
    mesh.send();
    (0..connections).for_each(|proxy| reject(&mesh, proxy));
    assert_eq!(waiting(&mesh), 1, "the same version of the same type, rejected by the same identity");

    for number in 0..10 {
        mesh.write(&filter(&format!("better-{number}")));
        mesh.send();
        (0..connections).for_each(|proxy| reject(&mesh, proxy));
    }
    assert_eq!(waiting(&mesh), 4, "others have room too");

    for number in 0..200 {
        mesh.connect(&format!("other-{number}"), false);
    }
    mesh.send();
    (0..mesh.proxies.len()).for_each(|proxy| reject(&mesh, proxy));
    assert_eq!(waiting(&mesh), 64);
}
